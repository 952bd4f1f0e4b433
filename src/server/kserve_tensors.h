// Tensors as KServe's protocol v2 writes them: names of types, data as JSON and as raw bytes (the binary extension).
//
// Raw bytes are little-endian and row-major, BOOL has a byte each, an element of BYTES is its length (u32) and itself.
// JSON has no agreed form of FP16 and BF16: they go as raw bytes alone.
//
// Thread rules: pure functions.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tensor/value.h"

namespace bolide::server {

// "FP32"; nothing for types that KServe has no name for.
std::optional<std::string_view> kserve_name(DType dtype);
std::optional<DType> dtype_of_kserve(std::string_view name);
// All names, for errors.
std::string kserve_names();
bool has_json_form(DType dtype);

// "FP32[2,3]", with -1 for a dim of any size; "FP32[...]" for any rank.
std::string kserve_type(DType dtype, const std::optional<std::vector<int64_t>>& dims);
std::string kserve_type(const Tensor& tensor);

// Dims as they came. Errors: negative ones, more than kRankMax, more elements than any tensor may have.
Result<Shape> checked_shape(std::span<const int64_t> dims);

// `texts_max`: elements of BYTES, each of which takes more memory than it may have bytes. Errors do not name the
// tensor.
Result<Tensor> tensor_of_json(DType dtype, const Shape& shape, const nlohmann::ordered_json& data, size_t texts_max);
Result<Tensor> tensor_of_bytes(DType dtype, const Shape& shape, std::string_view bytes, size_t texts_max);

size_t raw_bytes(const Tensor& tensor);
void append_raw(std::string& out, const Tensor& tensor);
// A flat JSON array. Errors: a type without a JSON form; NaN and infinities, which JSON has none of.
Result<> append_json_data(std::string& out, const Tensor& tensor);

}  // namespace bolide::server
