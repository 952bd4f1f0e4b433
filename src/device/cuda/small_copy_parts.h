// What cuda_stream.cc asks of small_copy.cu.
#pragma once

#include <cstddef>

struct CUstream_st;

namespace bolide {

// Enqueues a kernel that copies between memory that the device can reach: its own, or the host's if it is pinned.
// `fenced`: whatever is started once this has ended sees the bytes, also kernels that do not wait for the one in front
// (programmatic dependent launch); for memory of the device, where it is cheap. A cudaError_t.
int small_copy(CUstream_st* stream, void* to, const void* from, size_t bytes, bool fenced);

}  // namespace bolide
