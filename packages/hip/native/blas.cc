// What a product is called in messages (blas.h).
#include "blas.h"

namespace xhip {

std::string describe(const GemmProblem& p) {
  auto operand = [](const GemmOperand& o) {
    return std::string(o.transposed ? "transposed, ld " : "ld ") + std::to_string(o.ld) + ", batch stride " +
           std::to_string(o.batchStride);
  };
  return std::string("a ") + nameOf(p.type) + " product of " + std::to_string(p.batch) + " x [" + std::to_string(p.m) + ", " +
         std::to_string(p.k) + "] (" + operand(p.lhs) + ") and [" + std::to_string(p.k) + ", " + std::to_string(p.n) +
         "] (" + operand(p.rhs) + ")";
}

}  // namespace xhip
