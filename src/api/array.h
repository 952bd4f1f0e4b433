// Arrays of the public API as tensors, and back.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "base/result.h"
#include "bolide/network.h"
#include "tensor/value.h"

namespace bolide {

// Array's members for this folder.
struct ArrayAccess {
  static Array make(std::shared_ptr<const void> owner, const void* data, std::vector<int64_t> dims, size_t size,
                    ElementType type, bool writable);
  static const std::shared_ptr<const void>& owner(const Array& array) { return array.owner_; }
  static bool is_writable(const Array& array) { return array.writable_; }
  static bool is_left(const Array& array) { return array.is_left_; }
  static void mark_on_device(Array& array) { array.is_on_device_ = true; }
  // True if nobody but the caller keeps the elements, or they may change.
  static bool is_callers(const Array& array) { return array.owner_ == nullptr || array.writable_; }
};

DType to_dtype(ElementType type);
ElementType to_element_type(DType dtype);  // every one has one

// kInvalid: the array is none, or on a device, or its dims do not go with its elements; kUnsupported: too many dims.
// Shares the elements, texts apart.
Result<Tensor> to_tensor(const Array& array);
// Shares the elements.
Array to_array(const Tensor& tensor, bool writable = false);

}  // namespace bolide
