// Explanations behind report.h. On AMD the usual causes are the kernel driver (/dev/kfd absent), its permissions (the
// render or video group) and a container without the device nodes; HIP reports all of them as hipErrorNoDevice, so the
// device node is looked at here, and only after HIP has said that it sees nothing (an emulator needs no /dev/kfd).
#include "report.h"

#include <grp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace xhip {
namespace {

std::string groupOf(const char* path) {
  struct stat info;
  if (stat(path, &info) != 0) return "render";
  struct group entry;
  struct group* found = nullptr;
  char buffer[4096];
  if (getgrgid_r(info.st_gid, &entry, buffer, sizeof buffer, &found) == 0 && found) return found->gr_name;
  return "gid " + std::to_string(info.st_gid);
}

bool exists(const char* path) { return access(path, F_OK) == 0; }

void explainRocm(LoadFailure* failure) {
  if (exists("/dev/kfd") && access("/dev/kfd", R_OK | W_OK) != 0) {
    std::string why = std::strerror(errno);
    std::string group = groupOf("/dev/kfd");
    failure->code = "NO_PERMISSION";
    failure->message += ". /dev/kfd is there but cannot be opened for reading and writing (" + why +
                        "); it belongs to the group " + group;
    failure->remedy = "Add the user to that group and log in again: sudo usermod -aG " + group +
                      ",video,render $USER; in a container pass --device /dev/kfd --device /dev/dri --group-add " + group;
    return;
  }
  if (!exists("/dev/kfd")) {
    failure->message += exists("/dev/dxg")
                            ? ". This is WSL: there is no /dev/kfd and the HIP runtime did not find a GPU through /dev/dxg"
                            : ". /dev/kfd is missing: the amdgpu kernel driver is not loaded, there is no AMD GPU, or the "
                              "container was not given the device";
    failure->remedy = "Check `lspci | grep -i amd` and `modprobe amdgpu`; in a container pass --device /dev/kfd --device "
                      "/dev/dri and --group-add video --group-add render";
    return;
  }
  failure->message += ". /dev/kfd can be opened, so the driver is there, but no GPU that this HIP version supports was found";
  failure->remedy = "Check ROCR_VISIBLE_DEVICES and HIP_VISIBLE_DEVICES, that /dev/dri/renderD* can be opened, and that "
                    "this ROCm version supports the GPU (HSA_OVERRIDE_GFX_VERSION makes it treat a GPU as a close relative)";
}

void explainCuda(LoadFailure* failure, Status status) {
  if (!exists("/dev/nvidiactl")) {
    failure->message += ". /dev/nvidiactl is missing: there is no NVIDIA GPU, its kernel driver is not loaded, or the "
                        "container was not given it";
    failure->remedy = "Check nvidia-smi; in a container pass --gpus all";
  } else if (access("/dev/nvidiactl", R_OK | W_OK) != 0) {
    failure->code = "NO_PERMISSION";
    failure->message += ". /dev/nvidiactl is there but cannot be opened for reading and writing";
    failure->remedy = "Give the user access to /dev/nvidia*";
  } else if (status == 34) {
    failure->message += ". The libcuda that was found is the toolkit's stub, not the driver's";
    failure->remedy = "Take the CUDA toolkit's stubs directory out of LD_LIBRARY_PATH";
  } else {
    failure->remedy = "Check nvidia-smi and CUDA_VISIBLE_DEVICES; the driver and its kernel module must be of one version";
  }
}

}  // namespace

LoadFailure explainNoDevice(Platform platform, const Driver& driver, Call call, Status status) {
  LoadFailure failure;
  // HIP answers hipErrorInvalidDevice from hipInit and CUDA its own numbers; all of them mean that nothing is usable.
  bool none = status == 0 || status == kStatusNoDevice || status == kStatusInvalidDevice;
  failure.code = none ? "NO_DEVICE" : "DRIVER_ERROR";
  failure.name = status == 0 ? "" : driver.errorName(status);
  std::string library = driver.libraryPath();
  std::string version = driver.version();
  failure.message = std::string(callName(platform, call)) +
                    (status == 0 ? " reports 0 devices" : " failed with " + failure.name + " (" + std::to_string(status) + ")");
  if (!library.empty()) failure.message += " in " + library;
  if (!version.empty()) failure.message += ", version " + version;
  if (platform == Platform::Rocm) explainRocm(&failure);
  if (platform == Platform::Cuda) explainCuda(&failure, status);
  if (platform == Platform::Host) {
    failure.message += std::string(": ") + driver.errorString(status);
    failure.remedy = "Report this with the output of `lscpu`";
  }
  return failure;
}

std::string remedyFor(Platform platform, Call call, Status status, bool blocking) {
  if (status == kStatusOutOfMemory) return "Free buffers, use a smaller batch or dtype, or close other programs on the device";
  // An illegal address, a failed launch or a device assertion; it may surface at whatever call comes next.
  if (status == 700 || status == 719 || status == 710) {
    return std::string("A kernel read or wrote outside its buffers, and the device is unusable until the process ends") +
           (blocking ? "" : "; set X_LAUNCH_BLOCKING=1 to find which");
  }
  if (status == kStatusInvalidDevice) return "Use an ordinal below the device count of platforms()";
  if (call == Call::ModuleLoad) {
    if (platform == Platform::Rocm) {
      return status == kStatusNoBinaryForGpu
                 ? "Build the module for this GPU's arch; runtimes older than ROCm 6.4 load code object version 5 at most, "
                   "and Debian's 5.2.3 version 4"
                 : "Give loadModule a whole code object (ELF) built for this GPU's arch";
    }
    if (platform == Platform::Cuda) return "Check that the PTX version and target are ones this driver knows";
    return "Give loadModule the bytes of a shared object built for this CPU";
  }
  bool geometry = status == 1 || status == 9 || status == 701;
  if (call == Call::FuncSetShared || (call == Call::Launch && geometry)) {
    return "Check grid, block and shared bytes against device.properties";
  }
  if (status >= 900 && status <= 908) return "End the capture first, and keep allocations, host copies and waits out of it";
  return "";
}

}  // namespace xhip
