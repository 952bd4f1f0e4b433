// com.microsoft.MatMulNBits with packed weights: kernels/linear. accuracy_level 4 lets A be rounded to int8; any other
// keeps it in f32.
#include <algorithm>

#include "kernels/linear/packed_blocks.h"
#include "ops/dense.h"
#include "ops/prepared_rows.h"

namespace bolide {
namespace {

class PreparedBlocks final : public PreparedOp {
 public:
  PreparedBlocks(std::unique_ptr<PackedBlocks> matrix, std::vector<float> bias)
      : matrix_(std::move(matrix)), bias_(std::move(bias)), kernel_(fmt::format("blocks_{}", matrix_->kernel())) {}
  std::string_view kernel() const override { return kernel_; }
  size_t bytes() const override { return matrix_->bytes() + bias_.size() * sizeof(float); }
  bool holds(size_t input) const override { return input >= 1 && input <= 5; }

  Result<bool> run(RunContext& c) const override {
    BOLIDE_TRY(const Tensor* a, c.tensor(0));
    const int64_t K = matrix_->k(), N = matrix_->n();
    if (a->dtype() != DType::kF32 && a->dtype() != DType::kF16 && a->dtype() != DType::kBF16)
      return error(Code::kInvalid, fmt::format("A is of {}, expected f32, f16 or bf16", to_string(a->dtype())));
    if (a->rank() < 1 || a->dim(-1) != K)
      return error(Code::kInvalid, fmt::format("A is {}, K is {}", to_string(a->shape()), K));
    BOLIDE_TRY(const Tensor wide, widened<float>(c, *a));
    Shape shape = a->shape();
    shape[-1] = N;
    const bool plain = a->dtype() == DType::kF32;
    Tensor narrow;
    float* out = nullptr;
    if (plain) {
      BOLIDE_TRY(Tensor * y, c.make(0, DType::kF32, shape));
      out = y->mutate<float>().data();
    } else {
      BOLIDE_TRY(narrow, make_wide<float>(c, shape));
      out = narrow.mutate<float>().data();
    }
    const PackedBlocks::Rows rows{.rows = a->elements() / K,
                                  .x = wide.as<float>().data(),
                                  .x_stride = K,
                                  .out = out,
                                  .out_stride = N,
                                  .bias = bias_.empty() ? nullptr : bias_.data()};
    if (rows.rows > 0) {
      const auto bytes = static_cast<int64_t>(matrix_->workspace(rows.rows, c.workers().threads()));
      BOLIDE_TRY(Tensor workspace, c.scratch(DType::kU8, {bytes}));
      matrix_->run(rows, {workspace.mutable_data(), workspace.bytes()}, c.workers());
    }
    if (!plain) BOLIDE_TRY(emit(c, 0, a->dtype(), std::move(narrow)));
    return true;
  }

 private:
  std::unique_ptr<PackedBlocks> matrix_;
  std::vector<float> bias_;
  std::string kernel_;
};

// A constant of floats as f32; false: it is none.
bool floats_of(const Tensor* t, std::vector<float>& to) {
  if (t == nullptr) return false;
  const auto count = static_cast<size_t>(t->elements());
  to.resize(count);
  switch (t->dtype()) {
    case DType::kF32: std::copy_n(t->as<float>().begin(), count, to.begin()); return true;
    case DType::kF16:
      for (size_t i = 0; i < count; ++i) to[i] = f16_to_f32(t->as<uint16_t>()[i]);
      return true;
    case DType::kBF16:
      for (size_t i = 0; i < count; ++i) to[i] = bf16_to_f32(t->as<uint16_t>()[i]);
      return true;
    default: return false;
  }
}

}  // namespace

// What this does not take, wrong nodes among them, is the row's.
Prepared prepare_matmul_nbits(const PrepareContext& c) {
  const Attributes& attributes = c.attributes;
  BOLIDE_TRY(const int64_t K, attributes.integer("K", 0));
  BOLIDE_TRY(const int64_t N, attributes.integer("N", 0));
  BOLIDE_TRY(const int64_t bits, attributes.integer("bits", 4));
  BOLIDE_TRY(const int64_t block, attributes.integer("block_size", 0));
  BOLIDE_TRY(const int64_t accuracy, attributes.integer("accuracy_level", 0));
  const Tensor *b = c.constant(1), *zeros = c.constant(3);
  constexpr int64_t kMost = int64_t{1} << 31;
  if (c.has(4) || K < 1 || N < 1 || K > kMost || N > kMost || (bits != 4 && bits != 8) || block < 16 ||
      block > int64_t{1} << 20 || (block & (block - 1)) != 0 || b == nullptr || b->dtype() != DType::kU8)
    return nullptr;
  const int64_t blocks = (K + block - 1) / block;
  if (b->elements() != N * blocks * (block * bits / 8)) return nullptr;
  if (c.has(3) &&
      (zeros == nullptr || zeros->dtype() != DType::kU8 || zeros->elements() != N * ((blocks * bits + 7) / 8)))
    return nullptr;
  std::vector<float> scales, bias;
  if (!floats_of(c.constant(2), scales) || static_cast<int64_t>(scales.size()) != N * blocks) return nullptr;
  if (c.has(5) && (!floats_of(c.constant(5), bias) || c.constant(5)->shape() != Shape{N})) return nullptr;
  const PackedBlocks::Source source{.n = N,
                                    .k = K,
                                    .bits = static_cast<int>(bits),
                                    .block = block,
                                    .codes = b->as<uint8_t>().data(),
                                    .scales = scales.data(),
                                    .zeros = zeros == nullptr ? nullptr : zeros->as<uint8_t>().data()};
  BOLIDE_TRY(auto matrix, PackedBlocks::make(source, accuracy == 4, c.device, c.workers));
  if (matrix == nullptr) return nullptr;
  return std::make_unique<PreparedBlocks>(std::move(matrix), std::move(bias));
}

}  // namespace bolide
