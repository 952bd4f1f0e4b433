// Libraries opened at run time, so that the same binary starts where they are not: cuBLASLt, cuDNN, NVML, NCCL.
//
// Looked for in --cuda-libs, where the loader looks, in CUDA's toolkit, then where Python packages bring them
// (site-packages/nvidia/*/lib, of PYTHONPATH and of the Pythons beside PATH; none is run).
// Thread rules: plain const use from any thread.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace bolide {

class Library {
 public:
  // The first of `files` that opens in `folders`; an empty folder is where the loader looks. kUnavailable names the
  // library, every place, and what the loader said last.
  static Result<Library> open(std::string_view name, std::span<const char* const> files,
                              std::span<const std::filesystem::path> folders);
  // kUnavailable names library and function: it is older than what Bolide was built for.
  Result<void*> find(const char* function) const;
  template <class Function>
  Result<> find(const char* function, Function** out) const {
    BOLIDE_TRY(void* address, find(function));
    *out = reinterpret_cast<Function*>(address);
    return {};
  }
  const std::string& path() const { return path_; }

 private:
  std::string name_, path_;
  std::shared_ptr<void> handle_;
};

// Where to look, made once for a device.
struct CudaLibraries {
  std::vector<std::filesystem::path> folders;
};
// `first` may be empty.
CudaLibraries find_cuda_libraries(const std::filesystem::path& first);

Result<Library> open_cublaslt(const CudaLibraries& where);
Result<Library> open_cudnn(const CudaLibraries& where);
Result<Library> open_nvml(const CudaLibraries& where);
Result<Library> open_nccl(const CudaLibraries& where);

}  // namespace bolide
