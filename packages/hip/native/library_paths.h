// Where each platform's libraries are looked for, shared by the driver loaders and the run-time compilers.
#pragma once

#include <string>
#include <vector>

namespace xhip {

// ROCM_PATH and HIP_PATH, /opt/rocm/core*, /opt/rocm, /opt/rocm-*, then the loader's own path; `names` in order in each.
std::vector<std::string> rocmLibraryCandidates(const std::vector<std::string>& names);

// CUDA_PATH and CUDA_HOME, /usr/local/cuda*, then the loader's own path.
std::vector<std::string> cudaToolkitCandidates(const std::vector<std::string>& names);

}  // namespace xhip
