// What cuda_stream.cc asks of small_copy.cu.
#pragma once

#include <cstddef>

struct CUstream_st;

namespace bolide {

// Enqueues a kernel that copies between memory that the device can reach: its own, or the host's if it is pinned. A
// cudaError_t.
int small_copy(CUstream_st* stream, void* to, const void* from, size_t bytes);

}  // namespace bolide
