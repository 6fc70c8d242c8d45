// Matrix products on the host through OpenBLAS, as a task in the stream. The host platform has threads of its own, so
// OpenBLAS is told to use one and the product is cut into tiles that our threads share: nothing is oversubscribed, and
// X_HOST_THREADS holds for the library too. A build without threads may lack locks; its calls are kept apart.
#include <algorithm>
#include <mutex>
#include <sstream>

#include "blas.h"
#include "loaded_library.h"
#include "openblas_api.h"

namespace xhip {
namespace {

using openblas::Api;

struct Loaded : LoadedLibrary<Api> {
  bool sequential = false;
};

Loaded& loaded() {
  return loadedOnce<Loaded>([](Loaded& entry) {
    Api& api = entry.api;
    entry.info = loadVendorLibrary(
        LibraryId::OpenBlas,
        {X_SYMBOL(cblas_sgemm, false), X_SYMBOL(cblas_dgemm, false), X_SYMBOL(cblas_sbgemm, true),
         X_SYMBOL(openblas_set_num_threads, false), X_SYMBOL(openblas_get_parallel, true), X_SYMBOL(openblas_get_config, true)});
    if (!entry.info.available) return;
    api.openblas_set_num_threads(1);
    entry.sequential = api.openblas_get_parallel && api.openblas_get_parallel() == openblas::kSequential;
    if (api.openblas_get_config) {
      // "OpenBLAS 0.3.21 DYNAMIC_ARCH ... Haswell MAX_THREADS=64"
      std::istringstream words(api.openblas_get_config());
      std::string name;
      words >> name >> entry.info.version;
    }
  });
}

std::mutex gSequential;

// The payload of a task: the product and how its result is cut, `tileM` rows by `tileN` columns of our row-major result.
struct Product {
  const Loaded* library;
  GemmProblem problem;
  int64_t tileM, tileN, tilesM, tilesN;
};

template <class In, class Out, class Call>
void multiplyTile(const Product& product, uint64_t tile, Call call) {
  const GemmProblem& p = product.problem;
  const int64_t batch = int64_t(tile) / (product.tilesM * product.tilesN);
  const int64_t inside = int64_t(tile) % (product.tilesM * product.tilesN);
  const int64_t row = inside / product.tilesN * product.tileM;
  const int64_t column = inside % product.tilesN * product.tileN;
  const int64_t rows = std::min(product.tileM, p.m - row);
  const int64_t columns = std::min(product.tileN, p.n - column);
  const In* lhs = reinterpret_cast<const In*>(p.lhs.pointer) + batch * p.lhs.batchStride + (p.lhs.transposed ? row : row * p.lhs.ld);
  const In* rhs = reinterpret_cast<const In*>(p.rhs.pointer) + batch * p.rhs.batchStride + (p.rhs.transposed ? column * p.rhs.ld : column);
  Out* out = reinterpret_cast<Out*>(p.out) + (batch * p.m + row) * p.n + column;
  auto operation = [](const GemmOperand& operand) { return operand.transposed ? openblas::kTranspose : openblas::kNone; };
  call(openblas::kColumnMajor, operation(p.rhs), operation(p.lhs), int(columns), int(rows), int(p.k), Out(1), rhs,
       int(p.rhs.ld), lhs, int(p.lhs.ld), Out(0), out, int(p.n));
}

void runTiles(const void* payload, uint64_t begin, uint64_t end) {
  const Product& product = *static_cast<const Product*>(payload);
  const Api& api = product.library->api;
  std::unique_lock<std::mutex> lock(gSequential, std::defer_lock);
  if (product.library->sequential) lock.lock();
  for (uint64_t tile = begin; tile < end; tile++) {
    if (product.problem.type == ScalarType::F64) {
      multiplyTile<double, double>(product, tile, api.cblas_dgemm);
    } else if (product.problem.type == ScalarType::BF16) {
      multiplyTile<uint16_t, float>(product, tile, api.cblas_sbgemm);
    } else {
      multiplyTile<float, float>(product, tile, api.cblas_sgemm);
    }
  }
}

int64_t ceilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Below a megaflop or so a second thread costs more than it gives.
constexpr double kSerialFlops = 1 << 20;

// A tile per thread when one product is all there is, shaped to keep what is packed twice small; whole products otherwise.
void cut(Product* product, int64_t threads) {
  const GemmProblem& p = product->problem;
  constexpr int64_t kMinTile = 16;
  int64_t wanted = 2.0 * double(p.m) * double(p.n) * double(p.k) < kSerialFlops ? 1 : ceilDiv(threads, p.batch);
  if (product->library->sequential) wanted = 1;
  int64_t down = 1;
  int64_t across = std::max<int64_t>(1, std::min(wanted, p.n / kMinTile));
  for (int64_t rows = 2; rows <= wanted; rows++) {
    const int64_t columns = wanted / rows;
    if (rows * columns != wanted || p.m / rows < kMinTile || (columns > 1 && p.n / columns < kMinTile)) continue;
    if (down * across == wanted && p.m / rows + p.n / columns >= p.m / down + p.n / across) continue;
    down = rows;
    across = columns;
  }
  product->tileM = ceilDiv(p.m, down);
  product->tileN = ceilDiv(p.n, across);
  product->tilesM = ceilDiv(p.m, product->tileM);
  product->tilesN = ceilDiv(p.n, product->tileN);
}

class OpenBlas final : public BlasHandle {
 public:
  explicit OpenBlas(const Loaded& library) : library_(library) {}

  bool takes(ScalarType type, ScalarType outType) const override {
    if (type == ScalarType::BF16) return outType == ScalarType::F32 && library_.api.cblas_sbgemm;
    return type == outType && type != ScalarType::F16;
  }

  void gemm(Device& device, const GemmProblem& problem, Stream stream) override {
    Product product;
    product.library = &library_;
    product.problem = problem;
    cut(&product, device.properties().multiprocessorCount);
    const uint64_t tiles = uint64_t(problem.batch * product.tilesM * product.tilesN);
    // Small products of a batch on one thread: one block of all of them.
    const double flops = 2.0 * double(problem.batch) * double(problem.m) * double(problem.n) * double(problem.k);
    const bool together = flops < kSerialFlops || library_.sequential;
    const Status status = together ? device.table().enqueueTask(runAllTiles, &product, sizeof product, 1, stream)
                                   : device.table().enqueueTask(runTiles, &product, sizeof product, tiles, stream);
    if (status != 0) device.check(Call::Library, status, describe(problem));
  }

 private:
  static void runAllTiles(const void* payload, uint64_t, uint64_t) {
    const Product& product = *static_cast<const Product*>(payload);
    runTiles(payload, 0, uint64_t(product.problem.batch * product.tilesM * product.tilesN));
  }

  const Loaded& library_;
};

}  // namespace

LibraryInfo findOpenBlas() { return loaded().info; }

std::unique_ptr<BlasHandle> createOpenBlas(Device&) {
  Loaded& library = loaded();
  requireLibrary(LibraryId::OpenBlas, library.info);
  return std::make_unique<OpenBlas>(library);
}

}  // namespace xhip
