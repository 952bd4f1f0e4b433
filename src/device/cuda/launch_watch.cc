// What a kernel needs and how it fits the GPU, asked of CUDA when the kernel is launched.
#include <cuda_runtime_api.h>
#include <cxxabi.h>

#include <cstdlib>

#include "device/cuda/cuda_stream.h"

namespace bolide {
namespace {

std::string name_of(const void* kernel) {
  const char* symbol = nullptr;
  if (cudaFuncGetName(&symbol, kernel) != cudaSuccess || symbol == nullptr) return "?";
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> name(abi::__cxa_demangle(symbol, nullptr, nullptr, &status), std::free);
  return name == nullptr ? symbol : name.get();
}

}  // namespace

// A call that fails leaves zeros: the launch itself reports what is wrong with it.
void CudaStream::see(void* launches, const CudaLaunch& launch) {
  KernelLaunch seen{.name = name_of(launch.kernel),
                    .blocks = launch.blocks,
                    .threads = launch.threads,
                    .cluster = launch.cluster,
                    .dynamic_shared_bytes = static_cast<int64_t>(launch.dynamic_shared_bytes)};
  cudaFuncAttributes attributes{};
  if (cudaFuncGetAttributes(&attributes, launch.kernel) == cudaSuccess) {
    seen.registers = attributes.numRegs;
    seen.local_bytes = static_cast<int64_t>(attributes.localSizeBytes);
    seen.static_shared_bytes = static_cast<int64_t>(attributes.sharedSizeBytes);
  }
  if (cudaOccupancyMaxActiveBlocksPerMultiprocessor(&seen.blocks_multiprocessor, launch.kernel, launch.threads,
                                                    launch.dynamic_shared_bytes) != cudaSuccess)
    seen.blocks_multiprocessor = 0;
  cudaGetLastError();  // else the launch would be blamed for what failed here
  static_cast<std::vector<KernelLaunch>*>(launches)->push_back(std::move(seen));
}

}  // namespace bolide
