// Buckets of an open dim: inputs are filled up with zeros to the next of a few sizes and outputs cut back, so that a
// network sees few shapes. Right only for models to which zeros mean nothing (a mask that says so): a user asks for it.
//
// Thread rules: pure functions.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "onnx/import.h"

namespace bolide {

struct DimBuckets {
  std::string dim;
  std::vector<int64_t> sizes;  // ascending; beyond the last, a size stays what it is
};

// "sequence=32,64,128". kInvalid: no such dim among those that the inputs leave open; the error lists them.
Result<DimBuckets> parse_dim_buckets(std::string_view text, std::span<const OnnxProgram::Port> inputs);

// A dim of this run.
struct FilledDim {
  std::string_view dim;
  int64_t size = 0, filled = 0;
};
// `values` in the order of `inputs`, filled up; what was filled. kInvalid: inputs have different sizes of one dim.
Result<std::vector<FilledDim>> fill_up(std::span<const OnnxProgram::Port> inputs, std::span<const DimBuckets> buckets,
                                       std::span<AnyValue> values, TensorPool& pool);
// Outputs that declare such a dim are cut back to its size.
Result<> cut_back(std::span<const OnnxProgram::Port> outputs, std::span<const FilledDim> filled,
                  std::span<AnyValue> values, TensorPool& pool);

}  // namespace bolide
