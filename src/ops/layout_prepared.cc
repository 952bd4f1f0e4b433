// Transpose of elements of four bytes, and reductions of f32 over the last axes, made ready.
#include <algorithm>
#include <cstring>

#include "ops/dense.h"
#include "ops/prepared_rows.h"
#include "ops/shape.h"

namespace bolide {
namespace {

class RowTranspose final : public PreparedOp {
 public:
  RowTranspose(const isa::RowFunctions& rows, std::vector<int64_t> perm) : rows_(rows), perm_(std::move(perm)) {}
  std::string_view kernel() const override { return "transpose_rows"; }

  Result<bool> run(RunContext& c) const override {
    const Tensor* x = c.has(0) ? c.value(0)->tensor() : nullptr;
    const int rank = x != nullptr ? x->rank() : 0;
    if (rank < 2 || x->is_string() || element_bytes(x->dtype()) != 4 || x->elements() == 0) return false;
    if (!perm_.empty() && static_cast<int>(perm_.size()) != rank) return false;
    std::array<int, kRankMax> from{};  // of each axis of y, that of x
    std::array<bool, kRankMax> seen{};
    Shape shape;
    shape.rank = rank;
    for (int i = 0; i < rank; ++i) {
      const int64_t axis = perm_.empty() ? rank - 1 - i : perm_[static_cast<size_t>(i)];
      if (axis < 0 || axis >= rank || seen[static_cast<size_t>(axis)]) return false;
      seen[static_cast<size_t>(axis)] = true;
      from[static_cast<size_t>(i)] = static_cast<int>(axis);
      shape[i] = x->dim(static_cast<int>(axis));
    }
    BOLIDE_TRY(Tensor * y, c.make(0, x->dtype(), shape));
    const Strides own = strides_of(x->shape()), theirs = strides_of(shape);
    // The last axes of x that are also y's last, in the same order, are one block.
    int kept = 0;
    int64_t block = 1;
    while (kept < rank && from[static_cast<size_t>(rank - 1 - kept)] == rank - 1 - kept)
      block *= shape[rank - 1 - kept++];
    const auto* source = reinterpret_cast<const uint32_t*>(x->data());
    auto* target = reinterpret_cast<uint32_t*>(y->mutable_data());
    // Axes of y that are walked, with their strides in x and y; the rest is a block, or a matrix that is turned.
    std::vector<int> walked;
    for (int i = 0; i < rank - kept; ++i) walked.push_back(i);
    int turned = -1;  // the axis of y that x's last is
    if (kept == 0) {
      turned = static_cast<int>(std::find(from.begin(), from.begin() + rank, rank - 1) - from.begin());
      walked.pop_back();
      std::erase(walked, turned);
    }
    int64_t count = 1;
    for (const int i : walked) count *= shape[i];
    const auto offsets = [&](int64_t at) {
      int64_t in = 0, out = 0;
      for (size_t w = walked.size(); w-- > 0;) {
        const auto i = static_cast<size_t>(walked[w]);
        const int64_t index = at % shape[walked[w]];
        at /= shape[walked[w]];
        in += index * own[static_cast<size_t>(from[i])], out += index * theirs[i];
      }
      return std::pair(in, out);
    };
    if (kept > 0) {
      for_row_ranges(c.workers(), count, block, [&](int64_t begin, int64_t end) {
        for (int64_t at = begin; at < end; ++at) {
          const auto [in, out] = offsets(at);
          std::memcpy(target + out, source + in, static_cast<size_t>(block) * 4);
        }
      });
      return true;
    }
    const int64_t rows = shape[rank - 1], columns = x->dim(rank - 1);
    const int64_t from_stride = own[static_cast<size_t>(from[static_cast<size_t>(rank - 1)])];
    const int64_t to_stride = theirs[static_cast<size_t>(turned)];
    constexpr int64_t kRows = 64;  // of x at a time
    const int64_t pieces = (rows + kRows - 1) / kRows;
    for_row_ranges(c.workers(), count * pieces, std::min(rows, kRows) * columns, [&](int64_t begin, int64_t end) {
      for (int64_t at = begin; at < end; ++at) {
        const auto [in, out] = offsets(at / pieces);
        const int64_t first = at % pieces * kRows;
        rows_.transpose(source + in + first * from_stride, from_stride, std::min(kRows, rows - first), columns,
                        target + out + first, to_stride);
      }
    });
    return true;
  }

 private:
  const isa::RowFunctions& rows_;
  std::vector<int64_t> perm_;
};

class RowReduce final : public PreparedOp {
 public:
  RowReduce(const isa::RowFunctions& rows, RowFold fold) : rows_(rows), fold_(fold) {}
  std::string_view kernel() const override { return "reduce_rows"; }

  Result<bool> run(RunContext& c) const override {
    const Tensor* x = f32_at(c, 0);
    if (x == nullptr || x->elements() == 0) return false;
    BOLIDE_TRY(const int64_t keep, c.attributes().integer("keepdims", 1));
    BOLIDE_TRY(const int64_t none_is_none, c.attributes().integer("noop_with_empty_axes", 0));
    BOLIDE_TRY(std::vector<int64_t> axes, c.attributes().integers("axes"));
    BOLIDE_TRY(axes, c.integers(1, std::move(axes), kRankMax));
    auto reduced = axes_of(axes, x->rank());
    if (!reduced || (axes.empty() && none_is_none != 0)) return false;
    if (axes.empty()) reduced->fill(true);
    int first = x->rank();
    int64_t n = 1;
    while (first > 0 && (*reduced)[static_cast<size_t>(first - 1)]) n *= x->dim(--first);
    Shape shape;
    for (int i = 0; i < x->rank(); ++i) {
      if (i < first && (*reduced)[static_cast<size_t>(i)]) return false;
      if (i < first || keep != 0) shape.dims[static_cast<size_t>(shape.rank++)] = i < first ? x->dim(i) : 1;
    }
    BOLIDE_TRY(Tensor * y, c.make(0, DType::kF32, shape));
    const float* from = x->as<float>().data();
    float* to = y->mutate<float>().data();
    for_row_ranges(c.workers(), y->elements(), n, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const float* row = from + r * n;
        to[r] = fold_ == RowFold::kMax ? rows_.max(row, n) : rows_.sum(row, n);
        if (fold_ == RowFold::kMean) to[r] /= static_cast<float>(n);
      }
    });
    return true;
  }

 private:
  const isa::RowFunctions& rows_;
  RowFold fold_;
};

}  // namespace

Prepared prepare_transpose(const PrepareContext& c) {
  const isa::RowFunctions* rows = row_functions(c.device.isa);
  BOLIDE_TRY(auto perm, c.attributes.integers("perm"));
  if (rows == nullptr) return nullptr;
  return std::make_unique<RowTranspose>(*rows, std::move(perm));
}

Prepared prepare_reduce(const PrepareContext& c, RowFold fold) {
  const isa::RowFunctions* rows = row_functions(c.device.isa);
  if (rows == nullptr) return nullptr;
  return std::make_unique<RowReduce>(*rows, fold);
}

}  // namespace bolide
