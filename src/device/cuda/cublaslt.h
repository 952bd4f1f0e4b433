// cuBLASLt's functions, resolved from the library that was opened at run time. Includes CUDA's headers for the types:
// for *_cuda.cc and .cu files only.
#pragma once

#include <cublasLt.h>

#include "device/cuda/library.h"

namespace bolide {

// clang-format off: two runs of it do not agree on this list.
#define BOLIDE_CUBLASLT_FUNCTIONS(F) \
  F(Create) \
  F(Destroy) \
  F(GetVersion) \
  F(GetStatusString) \
  F(Matmul) \
  F(MatmulDescCreate) \
  F(MatmulDescDestroy) \
  F(MatmulDescSetAttribute) \
  F(MatrixLayoutCreate) \
  F(MatrixLayoutDestroy) \
  F(MatrixLayoutSetAttribute) \
  F(MatmulPreferenceCreate) \
  F(MatmulPreferenceDestroy) \
  F(MatmulPreferenceSetAttribute) \
  F(MatmulAlgoGetHeuristic) \
  F(MatmulAlgoGetIds) \
  F(MatmulAlgoInit) \
  F(MatmulAlgoCheck) \
  F(MatmulAlgoCapGetAttribute) \
  F(MatmulAlgoConfigSetAttribute) \
  F(MatmulAlgoConfigGetAttribute)
// clang-format on

// lt.Matmul(lt.handle, ...). The handle may be used by any thread; a workspace belongs to one stream.
struct CublasLt {
#define BOLIDE_DECLARE(name) decltype(::cublasLt##name)* name = nullptr;
  BOLIDE_CUBLASLT_FUNCTIONS(BOLIDE_DECLARE)
#undef BOLIDE_DECLARE
  cublasLtHandle_t handle = nullptr;  // of the device that was current
  std::string path;
};

Result<std::shared_ptr<const CublasLt>> load_cublaslt(const CudaLibraries& where);
// kInternal with the call and what cuBLASLt says.
Result<> check(const CublasLt& lt, cublasStatus_t status, std::string_view call);

}  // namespace bolide
