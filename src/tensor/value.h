// What flows between the ops of a general graph (ONNX): tensors of any element type and rank, sequences, optionals.
//
// Thread rules: a Tensor that has been handed on is read only, and may then be read by any thread; copies share its
// elements.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace bolide {

// Bytes of one element in a Tensor: sub-byte types have a byte each, strings are no bytes (0).
size_t element_bytes(DType dtype);

// Memory of tensors. Every tensor of it must be gone before it.
class TensorPool {
 public:
  virtual ~TensorPool() = default;
  // 64-byte aligned, contents arbitrary. kOutOfMemory names the size.
  virtual Result<std::shared_ptr<std::byte>> take(size_t bytes) = 0;
};
// Plain memory of the process, never kept. Any thread.
TensorPool& heap_pool();

// A contiguous, row-major tensor in host memory.
class Tensor {
 public:
  Tensor() = default;  // dtype kNone: no tensor
  // Elements are arbitrary, strings empty. kOutOfMemory: more than kBytesMax, or the pool has no more. kInvalid: a
  // negative dim.
  static Result<Tensor> make(DType dtype, const Shape& shape, TensorPool& pool = heap_pool());
  // Elements that somebody else keeps: a mapped file. They are read only.
  static Tensor over(std::shared_ptr<const void> owner, const std::byte* data, DType dtype, const Shape& shape);
  static Tensor strings(const Shape& shape, std::vector<std::string> values);
  // One element of a number, or a vector of them.
  template <class T>
  static Tensor scalar(DType dtype, T value);
  template <class T>
  static Tensor vector(DType dtype, std::span<const T> values);

  static constexpr uint64_t kBytesMax = uint64_t{1} << 40;

  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  int rank() const { return shape_.rank; }
  int64_t dim(int axis) const { return shape_[axis]; }  // negative: from the end
  int64_t elements() const { return elements_; }
  size_t bytes() const { return static_cast<size_t>(elements_) * element_bytes(dtype_); }
  bool is_string() const { return dtype_ == DType::kString; }
  explicit operator bool() const { return dtype_ != DType::kNone; }

  const std::byte* data() const { return data_; }
  // For whoever made it, before it is handed on.
  std::byte* mutable_data() { return const_cast<std::byte*>(data_); }
  // T has element_bytes(dtype()) bytes; std::string for strings.
  template <class T>
  std::span<const T> as() const {
    return {elements_of<T>(), static_cast<size_t>(elements_)};
  }
  template <class T>
  std::span<T> mutate() {
    return {const_cast<T*>(elements_of<T>()), static_cast<size_t>(elements_)};
  }
  // The same elements in another shape of as many.
  Tensor reshaped(const Shape& shape) const;
  // True if nobody else has these elements and they may be written.
  bool is_sole_owner() const { return writable_ && owner_.use_count() == 1; }

 private:
  template <class T>
  const T* elements_of() const {
    if constexpr (std::is_same_v<T, std::string>) {
      BOLIDE_CHECK(is_string(), "strings of {}", to_string(dtype_));
      return static_cast<const std::vector<std::string>*>(owner_.get())->data();
    } else {
      BOLIDE_CHECK(sizeof(T) == element_bytes(dtype_), "elements of {} bytes of {}", sizeof(T), to_string(dtype_));
      return reinterpret_cast<const T*>(data_);
    }
  }

  std::shared_ptr<const void> owner_;
  const std::byte* data_ = nullptr;
  Shape shape_;
  int64_t elements_ = 0;
  DType dtype_ = DType::kNone;
  bool writable_ = false;
};

struct AnyValue;
struct ValueSequence {
  std::vector<AnyValue> items;
};
// A tensor, a sequence, or an optional that has neither (monostate).
struct AnyValue {
  std::variant<std::monostate, Tensor, std::shared_ptr<const ValueSequence>> of;

  AnyValue() = default;
  AnyValue(Tensor tensor) : of(std::move(tensor)) {}  // NOLINT(google-explicit-constructor)
  // NOLINTNEXTLINE(google-explicit-constructor)
  AnyValue(std::shared_ptr<const ValueSequence> sequence) : of(std::move(sequence)) {}
  bool has_value() const { return of.index() != 0; }
  const Tensor* tensor() const { return std::get_if<Tensor>(&of); }
  const ValueSequence* sequence() const {
    const auto* there = std::get_if<std::shared_ptr<const ValueSequence>>(&of);
    return there == nullptr ? nullptr : there->get();
  }
};

template <class T>
Tensor Tensor::vector(DType dtype, std::span<const T> values) {
  auto made = make(dtype, {static_cast<int64_t>(values.size())});
  BOLIDE_CHECK(made.has_value(), "{}", made.error().text);
  const std::span<T> there = made->template mutate<T>();
  for (size_t i = 0; i < values.size(); ++i) there[i] = values[i];
  return *std::move(made);
}
template <class T>
Tensor Tensor::scalar(DType dtype, T value) {
  return vector(dtype, std::span<const T>(&value, 1)).reshaped({});
}

}  // namespace bolide
