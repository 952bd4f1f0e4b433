// Sample on a GPU, by the rules of sample.h: the same draws. SamplingRow and histories are the device's memory.
#pragma once

#include <span>

#include "kernels/kernel.h"

namespace bolide {

// A launch cannot return an error: a row whose largest logit is not finite gives token -1 and log-probability NaN.
std::span<const Kernel> sample_cuda_kernels();

}  // namespace bolide
