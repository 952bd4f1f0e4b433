// The contract between plan and kernels: Problem (what is to be computed) > Kernel and Tactic (how).
//
// A kernel is a constexpr row in an explicit list (lists_cpu.cc), fastest first, reference last. The plan asks each
// row in turn whether it supports the problem; the tuner may measure several. No kernel sees a Graph.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "device/device.h"
#include "ir/ops.h"
#include "ir/type.h"
#include "kernels/batch.h"
#include "tensor/tensor.h"

namespace bolide {

// What is to be computed. `sizes` is the bucket: the largest T, S and R that the plan will run with.
struct Problem {
  const Op* op = nullptr;
  std::span<const ValueType> in, out;
  SymbolValues sizes;
  const DeviceInfo* device = nullptr;
};

// Plain data: a tiling or a library's algorithm. Default-constructed: the kernel's own choice.
struct Tactic {
  std::array<std::byte, 64> bytes{};
  std::string_view name;
};

// The rows of a weight, wherever the checkpoint keeps them: `row(i)` is a contiguous row of k elements.
struct WeightRows {
  DType dtype = DType::kF32;
  const QuantScheme* quant = nullptr;
  int64_t rows = 0;  // all leading axes flattened
  int64_t k = 0;
  struct Run {
    const std::byte* data;  // `rows` rows, row_bytes apart
    int64_t rows;
  };
  std::span<const Run> runs;
  size_t row_bytes = 0;

  const std::byte* row(int64_t i) const {
    for (const Run& run : runs) {
      if (i < run.rows) return run.data + static_cast<size_t>(i) * row_bytes;
      i -= run.rows;
    }
    return nullptr;
  }
};

// A layout of weights that a kernel reads. Chosen once per weight for all buckets; lossless, so that an engine opened
// on another processor can be repacked.
struct Packing {
  std::string_view name;
  // Bytes of the packed weight; 0 if this packing cannot hold it.
  size_t (*bytes)(const ValueType& weight);
  // Fills dst (zeroed, 64-byte aligned). Errors: NaN or infinite weights or scales.
  Result<> (*pack)(const ValueType& weight, const WeightRows& source, MutableBytes dst, Workers& workers);
  // Writes the rows back in the source's layout, bit for bit for block schemes: proves that nothing was lost.
  Result<> (*unpack)(const ValueType& weight, Bytes packed, MutableBytes rows, Workers& workers);
  // Above 0: a matrix cut below a multiple of so many rows, and a stack of matrices cut between any two, packs piece by
  // piece, the pieces in order being the whole. A weight then goes to a device without lying on the host as a whole.
  int64_t piece_rows = 0;
};

// One execution. in[i] of a packed weight has data = the packed bytes and the weight's own shape, dtype and quant.
// A launch of a CUDA kernel enqueues: every view, the workspace and what `batch` points to is memory of the device
// (batch.h says which fields), and may be written by work that is enqueued before; shapes and sizes are host values. So
// a launch decides by sizes alone, never by contents, and can be captured.
struct Launch {
  const Op* op = nullptr;
  std::span<const TensorView> in, out;
  MutableBytes workspace;  // as many bytes as `workspace` asked for, 64-byte aligned, contents arbitrary
  const Tactic* tactic = nullptr;
  const BatchInputs* batch = nullptr;
};

class Tunable;  // kernels/tunable.h
struct Kernel;

// Consecutive steps in one launch. Any thread.
struct ChainKernel {
  std::string_view name;
  // How many of the launches, from the first on, go into one; below 2: none. kernels[i]: what else would run launch i.
  // Later ones may read, and write over, what earlier ones write or read, as if they ran one after the other. Decided
  // by types, shapes and sizes; data may be null.
  size_t (*takes)(std::span<const Launch> launches, std::span<const Kernel* const> kernels, const DeviceInfo& device);
  // As many as `takes` said, of any data.
  Result<> (*launch)(std::span<const Launch> launches, std::span<const Kernel* const> kernels, Stream& stream);
};

struct Kernel {
  std::string_view name;  // "linear_q4_vnni": op, what is special, instruction set
  DeviceKind device = DeviceKind::kCpu;
  bool (*supports)(const Problem&) = nullptr;
  // Bytes of scratch for the largest sizes of the problem; null: none.
  size_t (*workspace)(const Problem&) = nullptr;
  Result<> (*launch)(const Launch&, Stream&) = nullptr;
  // The packing that operand `i` must have; null function or null result: the checkpoint's own rows (1-D weights are
  // always handed over as f32).
  const Packing* (*packing)(const Problem&, int operand) = nullptr;
  // True: the bits of a token's result depend on the token, the weights and the attributes alone, not on the number of
  // tokens in the launch, its other tokens, the threads or where the cache's pages lie.
  bool batch_invariant = true;
  // A last resort: right for everything, fast for nothing. Plans should have none where speed matters.
  bool reference = false;
  // Where tactics are worth measuring: what a choice depends on, the same for problems that share it (empty: nothing to
  // choose), and the means to measure it. Null: the kernel has no tactics.
  std::string (*tuning_key)(const Problem&) = nullptr;
  Result<std::unique_ptr<Tunable>> (*tunable)(const Problem&, Device&) = nullptr;
  // What runs steps of this kernel and of others that have the same chain in one launch; null: nothing.
  const ChainKernel* chain = nullptr;
};

}  // namespace bolide
