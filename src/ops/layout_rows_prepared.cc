#include "ops/layout_rows_prepared.h"

#include <cstring>

#include "kernels/channels_last/channels_last.h"
#include "ops/moves.h"
#include "ops/prepared_rows.h"

namespace bolide::layout {
namespace {

// A permutation that takes [batch, rows, columns] to [batch, columns, rows], where each is a run of axes.
class PreparedTranspose final : public PreparedOp {
 public:
  PreparedTranspose(Isa isa, std::vector<int64_t> perm) : isa_(isa), perm_(std::move(perm)) {}
  std::string_view kernel() const override {
    return isa_ >= Isa::kAvx512 ? "transpose_32_avx512" : "transpose_32_avx2";
  }
  Result<bool> run(RunContext& c) const override {
    BOLIDE_TRY(const Tensor* x, c.tensor(0));
    if (x->is_string() || element_bytes(x->dtype()) != 4 || x->rank() != static_cast<int>(perm_.size())) return false;
    // The axes that stay, then where the second run begins.
    size_t stay = 0;
    while (stay < perm_.size() && perm_[stay] == static_cast<int64_t>(stay)) ++stay;
    const auto first = static_cast<size_t>(perm_[stay]), rank = perm_.size();
    Shape shape = x->shape();
    for (size_t i = 0; i < rank; ++i) shape.dims[i] = x->dim(static_cast<int>(perm_[i]));
    int64_t batch = 1, rows = 1, columns = 1;
    for (size_t i = 0; i < rank; ++i) (i < stay ? batch : i < first ? rows : columns) *= x->dim(static_cast<int>(i));
    BOLIDE_TRY(Tensor * y, c.make(0, x->dtype(), shape));
    if (y->elements() > 0)
      channels_last::transpose(c.workers(), isa_, batch, rows, columns, reinterpret_cast<const float*>(x->data()),
                               reinterpret_cast<float*>(y->mutable_data()));
    return true;
  }

 private:
  Isa isa_;
  std::vector<int64_t> perm_;
};

// copy(row) for all rows of `bytes` in all, on as many workers as that is worth.
template <class F>
void rows_on(Workers& workers, int64_t rows, size_t bytes, F&& copy) {
  constexpr size_t kChunk = 64 * 1024;
  const int64_t chunks = std::min({rows, static_cast<int64_t>(bytes / kChunk) + 1, int64_t{4} * workers.threads()});
  workers.run(chunks, [&](int64_t chunk, int) {
    for (int64_t row = rows * chunk / chunks; row < rows * (chunk + 1) / chunks; ++row) copy(row);
  });
}

// Parts of an axis beside one another in one tensor, or out of it.
class PreparedRows final : public PreparedOp {
 public:
  PreparedRows(bool joins, int64_t axis) : joins_(joins), axis_(axis) {}
  std::string_view kernel() const override { return joins_ ? "concat_rows" : "split_rows"; }
  Result<bool> run(RunContext& c) const override { return joins_ ? join(c) : split(c); }

 private:
  Result<bool> join(RunContext& c) const {
    std::vector<const Tensor*> parts;
    Shape shape;
    for (size_t i = 0; i < c.inputs(); ++i) {
      const Tensor* const part = c.value(i) == nullptr ? nullptr : c.value(i)->tensor();
      if (part == nullptr || part->is_string() || axis_ >= part->rank() || -axis_ > part->rank()) return false;
      const int axis = static_cast<int>(axis_ < 0 ? axis_ + part->rank() : axis_);
      if (i == 0) {
        shape = part->shape();
      } else {
        if (part->rank() != shape.rank || part->dtype() != parts[0]->dtype()) return false;
        for (int d = 0; d < shape.rank; ++d)
          if (d != axis && part->dim(d) != shape[d]) return false;
        shape[axis] += part->dim(axis);
      }
      parts.push_back(part);
    }
    if (parts.size() < 2) return false;
    const int axis = static_cast<int>(axis_ < 0 ? axis_ + shape.rank : axis_);
    BOLIDE_TRY(Tensor * y, c.make(0, parts[0]->dtype(), shape));
    const size_t row = row_bytes(*y, axis);
    if (y->elements() == 0) return true;
    std::vector<size_t> lengths;
    for (const Tensor* part : parts) lengths.push_back(row_bytes(*part, axis));
    std::byte* const to = y->mutable_data();
    rows_on(c.workers(), around(shape, axis).before, y->bytes(), [&](int64_t i) {
      std::byte* at = to + static_cast<size_t>(i) * row;
      for (size_t k = 0; k < parts.size(); at += lengths[k++])
        if (lengths[k] > 0) std::memcpy(at, parts[k]->data() + static_cast<size_t>(i) * lengths[k], lengths[k]);
    });
    return true;
  }

  Result<bool> split(RunContext& c) const {
    BOLIDE_TRY(const Tensor* x, c.tensor(0));
    if (x->is_string() || axis_ >= x->rank() || -axis_ > x->rank() || c.attributes().has("split") || c.outputs() < 2)
      return false;
    const int axis = static_cast<int>(axis_ < 0 ? axis_ + x->rank() : axis_);
    const auto count = static_cast<int64_t>(c.outputs());
    std::vector<int64_t> sizes;
    if (c.has(1)) {
      BOLIDE_TRY(sizes, c.integers(1));
    } else {
      if (c.attributes().has("num_outputs") || x->dim(axis) % count != 0) return false;
      sizes.assign(static_cast<size_t>(count), x->dim(axis) / count);
    }
    int64_t sum = 0;
    for (const int64_t size : sizes) {
      if (size < 0 || size > x->dim(axis) - sum) return false;
      sum += size;
    }
    if (sizes.size() != c.outputs() || sum != x->dim(axis)) return false;
    std::vector<std::byte*> to;
    std::vector<size_t> lengths;
    for (size_t i = 0; i < sizes.size(); ++i) {
      Shape shape = x->shape();
      shape[axis] = sizes[i];
      BOLIDE_TRY(Tensor * part, c.make(i, x->dtype(), shape));
      to.push_back(part->mutable_data());
      lengths.push_back(row_bytes(*part, axis));
    }
    if (x->elements() == 0) return true;
    const size_t row = row_bytes(*x, axis);
    rows_on(c.workers(), around(x->shape(), axis).before, x->bytes(), [&](int64_t i) {
      const std::byte* at = x->data() + static_cast<size_t>(i) * row;
      for (size_t k = 0; k < to.size(); at += lengths[k++])
        if (lengths[k] > 0) std::memcpy(to[k] + static_cast<size_t>(i) * lengths[k], at, lengths[k]);
    });
    return true;
  }

  static size_t row_bytes(const Tensor& t, int axis) {
    return static_cast<size_t>(t.dim(axis) * around(t.shape(), axis).after) * element_bytes(t.dtype());
  }

  bool joins_;
  int64_t axis_;
};

// Whether the axes from some place on are two runs that change places.
bool exchanges_runs(const std::vector<int64_t>& perm) {
  size_t stay = 0;
  while (stay < perm.size() && perm[stay] == static_cast<int64_t>(stay)) ++stay;
  if (stay == perm.size() || perm.size() > kRankMax) return false;
  if (perm[stay] < 0 || perm[stay] >= static_cast<int64_t>(perm.size())) return false;
  const auto first = static_cast<size_t>(perm[stay]), moved = perm.size() - first;
  for (size_t i = stay; i < perm.size(); ++i)
    if (perm[i] != static_cast<int64_t>(i < stay + moved ? first + (i - stay) : i - moved)) return false;
  return true;
}

}  // namespace

Result<std::unique_ptr<PreparedOp>> prepare_transpose(const PrepareContext& context) {
  const auto perm = context.attributes.integers("perm");
  if (!perm || !channels_last::supports(context.device.isa) || !exchanges_runs(*perm))
    return bolide::prepare_transpose(context);
  return std::make_unique<PreparedTranspose>(context.device.isa, *perm);
}

Result<std::unique_ptr<PreparedOp>> prepare_concat(const PrepareContext& context) {
  const auto axis = context.attributes.integer("axis", 1);
  if (!axis || *axis < -kRankMax || *axis > kRankMax) return nullptr;
  return std::make_unique<PreparedRows>(true, *axis);
}

Result<std::unique_ptr<PreparedOp>> prepare_split(const PrepareContext& context) {
  const auto axis = context.attributes.integer("axis", 0);
  if (!axis || *axis < -kRankMax || *axis > kRankMax) return nullptr;
  return std::make_unique<PreparedRows>(false, *axis);
}

}  // namespace bolide::layout
