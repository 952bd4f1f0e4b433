#include "tensor/value.h"

#include <fmt/format.h>

#include <new>

#include "base/bytes.h"
#include "base/memory.h"
#include "tensor/pages.h"

namespace bolide {
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kLarge = 256 << 10;  // weights that passes and packing replace leave no gaps behind

class HeapPool final : public TensorPool {
 public:
  Result<std::shared_ptr<std::byte>> take(size_t bytes) override {
    BOLIDE_TRY(expect_memory(bytes));
    const bool is_large = bytes >= kLarge, has_large_pages = bytes >= kLargePage;
    auto* data = is_large ? map_pages(bytes, has_large_pages ? kLargePage : 1)
                          : static_cast<std::byte*>(
                                ::operator new(bytes == 0 ? 1 : bytes, std::align_val_t{kAlignment}, std::nothrow));
    if (data == nullptr)
      return error(Code::kOutOfMemory, fmt::format("no memory for {}{}", size_text(bytes), address_limit_note()));
    if (has_large_pages) prefer_large_pages(data, bytes);
    if (is_large) return std::shared_ptr<std::byte>(data, [bytes](std::byte* p) { unmap_pages(p, bytes); });
    return std::shared_ptr<std::byte>(data, [](std::byte* p) { ::operator delete(p, std::align_val_t{kAlignment}); });
  }
};

}  // namespace

size_t element_bytes(DType dtype) {
  const int bits = bits_of(dtype);
  return bits == 0 ? 0 : bits < 8 ? 1 : static_cast<size_t>(bits) / 8;
}

TensorPool& heap_pool() {
  static HeapPool pool;
  return pool;
}

Result<Tensor> Tensor::make(DType dtype, const Shape& shape, TensorPool& pool) {
  uint64_t bytes = dtype == DType::kString ? sizeof(std::string) : element_bytes(dtype);
  bool empty = false, beyond = false;
  for (const int64_t dim : shape.span()) {
    if (dim < 0) return error(Code::kInvalid, fmt::format("a tensor of shape {}", to_string(shape)));
    empty = empty || dim == 0;
    beyond = beyond || (dim > 0 && mul_overflows(bytes, static_cast<uint64_t>(dim), &bytes)) || bytes > kBytesMax;
  }
  const auto named = [&] { return fmt::format("{}{}", to_string(dtype), to_string(shape)); };
  if (beyond && !empty) return error(Code::kOutOfMemory, fmt::format("{}: no machine has so much memory", named()));
  Tensor tensor;
  tensor.dtype_ = dtype;
  tensor.shape_ = shape;
  tensor.elements_ = empty ? 0 : shape.elements();
  tensor.writable_ = true;
  if (dtype == DType::kString) {
    BOLIDE_TRY(expect_memory(empty ? 0 : bytes).context(named()));
    tensor.owner_ = std::make_shared<std::vector<std::string>>(static_cast<size_t>(tensor.elements_));
    return tensor;
  }
  auto taken = pool.take(empty ? 0 : bytes);
  if (!taken) return std::move(taken).error().context(named());
  std::shared_ptr<std::byte> memory = *std::move(taken);
  tensor.data_ = memory.get();
  tensor.owner_ = std::move(memory);
  return tensor;
}

Tensor Tensor::over(std::shared_ptr<const void> owner, const std::byte* data, DType dtype, const Shape& shape) {
  Tensor tensor;
  tensor.owner_ = std::move(owner);
  tensor.data_ = data;
  tensor.dtype_ = dtype;
  tensor.shape_ = shape;
  tensor.elements_ = shape.elements();
  return tensor;
}

Tensor Tensor::strings(const Shape& shape, std::vector<std::string> values) {
  BOLIDE_CHECK(static_cast<int64_t>(values.size()) == shape.elements(), "{} strings for {}", values.size(),
               to_string(shape));
  Tensor tensor;
  tensor.dtype_ = DType::kString;
  tensor.shape_ = shape;
  tensor.elements_ = shape.elements();
  tensor.writable_ = true;
  tensor.owner_ = std::make_shared<std::vector<std::string>>(std::move(values));
  return tensor;
}

Tensor Tensor::reshaped(const Shape& shape) const {
  BOLIDE_CHECK(shape.elements() == elements_, "{} as {}", to_string(shape_), to_string(shape));
  Tensor tensor = *this;
  tensor.shape_ = shape;
  return tensor;
}

}  // namespace bolide
