// What launch and supports functions of CUDA kernels share: for *_cuda.cc files.
#pragma once

#include "device/cuda/cuda_stream.h"
#include "kernels/common/cuda_target.h"
#include "kernels/common/launch.h"

namespace bolide {

inline CudaTarget target_of(Stream& stream) {
  const CudaStream& cuda = as_cuda(stream);
  const GpuInfo& gpu = cuda.state().gpu();
  return {cuda.handle(),          gpu.multiprocessors, gpu.compute_capability,
          gpu.shared_bytes_block, cuda.barriers(),     cuda.launch_watch()};
}

inline CudaMatrix matrix_of(const TensorView& view) {
  return {view.data, view.dtype, view.rows(), view.cols(), view.row_stride};
}

// Ends a launch function: `status` is what the .cu file's function returned.
inline Result<> launched(Stream& stream, int status, std::string_view kernel) {
  if (status == 0) [[likely]]
    return {};
  return as_cuda(stream).state().check(status, kernel);
}

// Element types of activations that GPU kernels take: f32 and bf16.
inline bool is_activation(DType dtype) { return dtype == DType::kF32 || dtype == DType::kBF16; }

// All of these values have the element type of the first, and it is one of activations.
inline bool same_activations(std::span<const ValueType> types) {
  return std::all_of(types.begin(), types.end(), [&](const ValueType& type) {
    return is_activation(type.dtype) && type.quant == nullptr && type.dtype == types[0].dtype;
  });
}

}  // namespace bolide
