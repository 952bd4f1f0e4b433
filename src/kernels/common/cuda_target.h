// What crosses from a *_cuda.cc file, which knows Launch, to a .cu file, which knows CUDA: plain data, light headers.
// A .cu file's launch functions return a cudaError_t as int; launched() (kernels/common/cuda.h) makes it a Result.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

struct CUstream_st;

namespace bolide {

struct LaunchWatch;  // device/cuda/launch_watch_parts.h

struct CudaTarget {
  CUstream_st* stream = nullptr;
  int multiprocessors = 0;
  int compute_capability = 0;  // 90 for 9.0
  int64_t shared_bytes_block = 0;
  // Of the stream: zeros between kernels (CudaStream::kBarriers of them), in which the blocks of one kernel may count,
  // and leave zeros. Null: the stream has none.
  uint32_t* barriers = nullptr;
  const LaunchWatch* watch = nullptr;  // told of every launch; null in production
  // CudaStream::claim_waiting(): kernels whose blocks wait for each other may start block by block.
  bool alone = false;
  // Kernels may start while the one before ends (programmatic dependent launch): they call wait_for_previous(), which
  // waits in code for compute capability 9.0. Newer GPUs run the code for 8.0, which does not.
  bool dependent_launch() const { return compute_capability == 90; }
};

// A matrix on the device: rows `stride` elements apart.
struct CudaMatrix {
  void* data = nullptr;
  DType dtype = DType::kNone;
  int64_t rows = 0, cols = 0, stride = 0;
};

}  // namespace bolide
