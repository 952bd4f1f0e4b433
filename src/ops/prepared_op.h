// PreparedOp: what a general op becomes when its network is made ready for a device: constant inputs packed as a kernel
// reads them, the kernel chosen. A node without one runs its row's reference kernel.
//
// Thread rules: immutable once made; runs on several threads at once, each with a RunContext of its own.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "base/result.h"
#include "base/workers.h"
#include "device/device.h"
#include "ir/op_def.h"

namespace bolide {

// What is known of a node before anything runs.
struct PrepareContext {
  const Attributes& attributes;
  int64_t version = 1;
  std::span<const AnyValue* const> constants;  // by input; null: absent, or not constant
  size_t outputs = 1;
  const DeviceInfo& device;
  Workers& workers;
  DType compute = DType::kF32;  // bf16: Conv, Gemm, MatMul and attention of f32 may round what they multiply to it

  uint64_t present = 0;  // bit i: the node lists input i, constant or not

  bool has(size_t i) const { return i < 64 && (present >> i & 1) != 0; }
  // A constant tensor, else null.
  const Tensor* constant(size_t i) const {
    return i < constants.size() && constants[i] != nullptr ? constants[i]->tensor() : nullptr;
  }
};

class PreparedOp {
 public:
  PreparedOp() = default;
  PreparedOp(const PreparedOp&) = delete;
  PreparedOp& operator=(const PreparedOp&) = delete;
  virtual ~PreparedOp() = default;

  virtual std::string_view kernel() const = 0;  // "conv_f32_avx512": inspect and profile show it
  virtual size_t bytes() const { return 0; }    // of what it has packed
  // True: constant input i is never read again, by this or by the row's kernel; its memory may go. Its value in the
  // context is then absent, and `run` may not refuse.
  virtual bool holds(size_t /*input*/) const { return false; }
  // False: not for inputs of these types and shapes, nothing was made; the row's kernel runs. Inputs are as little
  // checked as a row's are.
  virtual Result<bool> run(RunContext& context) const = 0;
};

}  // namespace bolide
