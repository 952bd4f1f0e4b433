#include "app/network_buckets.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <set>

namespace bolide {
namespace {

// The common part of both shapes, at the beginning of each dim; the rest zero.
Result<Tensor> resized(const Tensor& from, const Shape& shape, TensorPool& pool) {
  BOLIDE_TRY(Tensor to, Tensor::make(from.dtype(), shape, pool));
  const size_t element = element_bytes(from.dtype());
  std::memset(to.mutable_data(), 0, to.bytes());
  if (from.elements() == 0 || to.elements() == 0) return to;
  const std::span<const int64_t> source = from.shape().span(), target = to.shape().span();
  const size_t last = source.size() - 1;  // of at least one dim: scalars have the same shape
  const size_t run = element * static_cast<size_t>(std::min(source[last], target[last]));
  std::array<int64_t, kRankMax> at{};
  for (bool more = true; more;) {
    int64_t read = 0, write = 0;
    for (size_t i = 0; i <= last; ++i) read = read * source[i] + at[i], write = write * target[i] + at[i];
    std::memcpy(to.mutable_data() + static_cast<size_t>(write) * element,
                from.data() + static_cast<size_t>(read) * element, run);
    more = false;
    for (size_t i = last; i-- > 0 && !more;) {
      more = ++at[i] < std::min(source[i], target[i]);
      if (!more) at[i] = 0;
    }
  }
  return to;
}

}  // namespace

Result<DimBuckets> parse_dim_buckets(std::string_view text, std::span<const OnnxProgram::Port> inputs) {
  std::set<std::string_view> open;
  for (const OnnxProgram::Port& port : inputs)
    if (port.type.dims.has_value())
      for (const OnnxDim& dim : *port.type.dims)
        if (!dim.value.has_value() && !dim.symbol.empty()) open.insert(dim.symbol);
  const auto refuse = [&] {
    return error(Code::kInvalid,
                 fmt::format("--bucket {:.80}: expected NAME=SIZE,SIZE,... with ascending sizes and a "
                             "dim that the inputs leave open: {}",
                             text, open.empty() ? "there is none" : fmt::format("{}", fmt::join(open, ", "))));
  };
  const size_t equals = text.find('=');
  if (equals == std::string_view::npos || !open.contains(text.substr(0, equals))) return refuse();
  DimBuckets buckets{std::string(text.substr(0, equals)), {}};
  for (std::string_view rest = text.substr(equals + 1);;) {
    int64_t size = 0;
    const auto [end, failure] = std::from_chars(rest.data(), rest.data() + rest.size(), size);
    if (failure != std::errc() || size < 1 || (!buckets.sizes.empty() && size <= buckets.sizes.back())) return refuse();
    buckets.sizes.push_back(size);
    rest.remove_prefix(static_cast<size_t>(end - rest.data()));
    if (rest.empty()) return buckets;
    if (rest[0] != ',') return refuse();
    rest.remove_prefix(1);
  }
}

Result<std::vector<FilledDim>> fill_up(std::span<const OnnxProgram::Port> inputs, std::span<const DimBuckets> buckets,
                                       std::span<AnyValue> values, TensorPool& pool) {
  std::vector<FilledDim> filled;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Tensor* tensor = values[i].tensor();
    if (tensor == nullptr || tensor->is_string() || !inputs[i].type.dims.has_value()) continue;
    Shape shape = tensor->shape();
    for (size_t d = 0; d < inputs[i].type.dims->size(); ++d) {
      const OnnxDim& dim = (*inputs[i].type.dims)[d];
      const auto of =
          std::find_if(buckets.begin(), buckets.end(), [&](const DimBuckets& b) { return b.dim == dim.symbol; });
      if (dim.value.has_value() || of == buckets.end()) continue;
      int64_t& size = shape[static_cast<int>(d)];
      const auto next = std::lower_bound(of->sizes.begin(), of->sizes.end(), size);
      const auto known =
          std::find_if(filled.begin(), filled.end(), [&](const FilledDim& f) { return f.dim == of->dim; });
      if (known != filled.end() && known->size != size)
        return error(Code::kInvalid,
                     fmt::format("input {}: its dim {} is {}, in another input {}; --bucket needs one size",
                                 inputs[i].name, of->dim, size, known->size));
      const int64_t to = next == of->sizes.end() ? size : *next;
      if (known == filled.end()) filled.push_back({of->dim, size, to});
      size = to;
    }
    if (shape == tensor->shape()) continue;
    BOLIDE_TRY(Tensor wide, resized(*tensor, shape, pool));
    values[i] = AnyValue(std::move(wide));
  }
  return filled;
}

Result<> cut_back(std::span<const OnnxProgram::Port> outputs, std::span<const FilledDim> filled,
                  std::span<AnyValue> values, TensorPool& pool) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Tensor* tensor = values[i].tensor();
    if (tensor == nullptr || tensor->is_string() || !outputs[i].type.dims.has_value() ||
        static_cast<int>(outputs[i].type.dims->size()) != tensor->rank())
      continue;
    Shape shape = tensor->shape();
    for (size_t d = 0; d < outputs[i].type.dims->size(); ++d)
      for (const FilledDim& one : filled)
        if (int64_t& size = shape[static_cast<int>(d)];
            (*outputs[i].type.dims)[d].symbol == one.dim && size == one.filled)
          size = one.size;
    if (shape == tensor->shape()) continue;
    BOLIDE_TRY(Tensor cut, resized(*tensor, shape, pool));
    values[i] = AnyValue(std::move(cut));
  }
  return {};
}

}  // namespace bolide
