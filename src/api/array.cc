#include "api/array.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>

#include "base/bytes.h"

namespace bolide {
namespace {

// By ElementType.
constexpr DType kDTypes[] = {
    DType::kNone,   DType::kF64,    DType::kF32,        DType::kF16,        DType::kBF16,
    DType::kF8E4M3, DType::kF8E5M2, DType::kF8E4M3FNUZ, DType::kF8E5M2FNUZ, DType::kF8E8M0,
    DType::kF4E2M1, DType::kI64,    DType::kI32,        DType::kI16,        DType::kI8,
    DType::kI4,     DType::kI2,     DType::kU64,        DType::kU32,        DType::kU16,
    DType::kU8,     DType::kU4,     DType::kU2,         DType::kBool,       DType::kString,
};
static_assert(std::size(kDTypes) == static_cast<size_t>(ElementType::kString) + 1);

bool is_aligned(const void* data, size_t bytes) { return reinterpret_cast<uintptr_t>(data) % bytes == 0; }

}  // namespace

DType to_dtype(ElementType type) { return kDTypes[static_cast<size_t>(type)]; }

ElementType to_element_type(DType dtype) {
  const auto* const found = std::find(std::begin(kDTypes), std::end(kDTypes), dtype);
  BOLIDE_CHECK(found != std::end(kDTypes), "no element type {}", to_string(dtype));
  return static_cast<ElementType>(found - kDTypes);
}

std::string_view to_string(ElementType type) { return to_string(to_dtype(type)); }
size_t element_bytes(ElementType type) { return element_bytes(to_dtype(type)); }

Array ArrayAccess::make(std::shared_ptr<const void> owner, const void* data, std::vector<int64_t> dims, size_t size,
                        ElementType type, bool writable) {
  Array array;
  array.owner_ = std::move(owner);
  array.data_ = data;
  array.dims_ = std::move(dims);
  array.size_ = size;
  array.type_ = type;
  array.writable_ = writable;
  return array;
}

Array Array::view(ElementType type, std::vector<int64_t> dims, const void* data, size_t elements,
                  std::shared_ptr<const void> owner) {
  return ArrayAccess::make(std::move(owner), data, std::move(dims), elements, type, false);
}

Array Array::memory(ElementType type, void* data, size_t elements, std::shared_ptr<void> owner) {
  return ArrayAccess::make(std::move(owner), data, {static_cast<int64_t>(elements)}, elements, type, true);
}

Array Array::left_on_device() {
  Array array;
  array.is_left_ = true;
  return array;
}

void Array::check_type(ElementType asked, size_t bytes) const {
  BOLIDE_CHECK(!is_on_device_, "an array on a device was asked for its elements");
  const bool is_bits = bytes == element_bytes(type_) && (asked == ElementType::kU8 || asked == ElementType::kU16 ||
                                                         asked == ElementType::kU32 || asked == ElementType::kU64);
  BOLIDE_CHECK(asked == type_ || is_bits, "an array of {} was asked for {}", to_string(type_), to_string(asked));
}

void Array::check_writable() const { BOLIDE_CHECK(writable_, "an array that is read only was asked to be written"); }

Result<Tensor> to_tensor(const Array& array) {
  if (!array) return error(Code::kInvalid, "an array of no type");
  if (array.on_device()) return error(Code::kInvalid, "an array on a GPU: Session::to_host copies it from there");
  if (array.dims().size() > kRankMax)
    return error(Code::kUnsupported, fmt::format("{} dims, at most {} can be", array.dims().size(), kRankMax));
  uint64_t elements = 1;
  bool beyond = false;
  for (const int64_t dim : array.dims())
    beyond = beyond || dim < 0 || mul_overflows(elements, static_cast<uint64_t>(dim), &elements);
  if (beyond || elements != array.size())
    return error(Code::kInvalid, fmt::format("dims [{}] do not go with the {} elements that the memory has",
                                             fmt::join(array.dims(), ", "), array.size()));
  const Shape shape(array.dims());
  if (array.type() == ElementType::kString) {
    const auto texts = array.as<std::string>();
    return Tensor::strings(shape, {texts.begin(), texts.end()});
  }
  if (array.data() == nullptr && elements != 0) return error(Code::kInvalid, "elements without memory");
  if (!is_aligned(array.data(), element_bytes(array.type())))
    return error(Code::kInvalid, fmt::format("its memory is not aligned to {} bytes", element_bytes(array.type())));
  return Tensor::over(ArrayAccess::owner(array), static_cast<const std::byte*>(array.data()), to_dtype(array.type()),
                      shape);
}

Array to_array(const Tensor& tensor, bool writable) {
  auto kept = std::make_shared<const Tensor>(tensor);
  const void* data = kept->data();
  if (kept->is_string()) data = kept->as<std::string>().data();
  const auto dims = kept->shape().span();
  return ArrayAccess::make(std::move(kept), data, {dims.begin(), dims.end()}, static_cast<size_t>(tensor.elements()),
                           to_element_type(tensor.dtype()), writable);
}

}  // namespace bolide
