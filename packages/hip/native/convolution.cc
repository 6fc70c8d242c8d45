// What a convolution is called in messages (convolution.h).
#include "convolution.h"

namespace xhip {

std::string describe(const ConvolutionShape& s) {
  auto list = [](const int* values, int count) {
    std::string text = "[";
    for (int i = 0; i < count; i++) text += (i ? ", " : "") + std::to_string(values[i]);
    return text + "]";
  };
  return std::string("a ") + nameOf(s.type) + (s.transposed ? " transposed" : "") + (s.channelsLast ? " channels-last" : "") + " convolution of " + list(s.x, 4) + " with " +
         list(s.filter, 4) + " to " + list(s.y, 4) + ", padding " + list(s.padding, 2) + ", stride " + list(s.stride, 2) +
         ", dilation " + list(s.dilation, 2);
}

}  // namespace xhip
