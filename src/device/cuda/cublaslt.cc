#include "device/cuda/cublaslt.h"

#include <fmt/format.h>

namespace bolide {

Result<std::shared_ptr<const CublasLt>> load_cublaslt(const CudaLibraries& where) {
  BOLIDE_TRY(const Library library, open_cublaslt(where));
  auto lt = std::make_shared<CublasLt>();
#define BOLIDE_RESOLVE(name) BOLIDE_TRY(library.find("cublasLt" #name, &lt->name));
  BOLIDE_CUBLASLT_FUNCTIONS(BOLIDE_RESOLVE)
#undef BOLIDE_RESOLVE
  lt->path = library.path();
  BOLIDE_TRY(check(*lt, lt->Create(&lt->handle), "cublasLtCreate"));
  return std::shared_ptr<const CublasLt>(std::move(lt));
}

Result<> check(const CublasLt& lt, cublasStatus_t status, std::string_view call) {
  if (status == CUBLAS_STATUS_SUCCESS) return {};
  return error(Code::kInternal,
               fmt::format("{}: {} (cuBLASLt status {})", call, lt.GetStatusString(status), static_cast<int>(status)));
}

}  // namespace bolide
