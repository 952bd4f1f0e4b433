// TensorView: non-owning, trivially copyable. Buffer: owning, move-only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/bytes.h"
#include "base/result.h"
#include "tensor/dtype.h"
#include "tensor/quant.h"
#include "tensor/shape.h"

namespace bolide {

enum class DeviceKind : uint8_t { kCpu, kCuda };
struct DeviceId {
  DeviceKind kind = DeviceKind::kCpu;
  int16_t index = 0;
  friend bool operator==(DeviceId, DeviceId) = default;
};

// Bytes of one row of k elements; k must be a multiple of quant's block_elements. Checked where files are read.
size_t row_bytes(DType dtype, const QuantScheme* quant, int64_t k);

// A matrix or vector somewhere in memory. The last axis is contiguous; `row_stride` is the distance in elements between
// rows (all axes but the last, flattened): a column slice of a [T, N] value has row_stride N. Block-quantised views
// (quant != nullptr) are always contiguous.
struct TensorView {
  std::byte* data = nullptr;
  DType dtype = DType::kNone;
  const QuantScheme* quant = nullptr;
  Shape shape;
  int64_t row_stride = 0;
  DeviceId device;

  int64_t cols() const { return shape.rank == 0 ? 1 : shape[-1]; }
  int64_t rows() const {
    int64_t n = 1;
    for (int i = 0; i + 1 < shape.rank; ++i) n *= shape[i];
    return n;
  }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data);
  }
  template <class T>
  T* row(int64_t i) const {
    return reinterpret_cast<T*>(data) + i * row_stride;
  }
};

// A contiguous view of `data`.
TensorView make_view(std::byte* data, DType dtype, const Shape& shape, const QuantScheme* quant = nullptr);

// Owning memory of one device, aligned to 64 bytes on the CPU. Host buffers come zeroed from the operating system.
class Buffer {
 public:
  using Deleter = void (*)(std::byte*, size_t);

  Buffer() = default;
  Buffer(std::byte* data, size_t bytes, DeviceId device, Deleter deleter)
      : data_(data), bytes_(bytes), device_(device), deleter_(deleter) {}
  // Anonymous host memory; kOutOfMemory names the size. kSmall for what may stay mostly untouched: a first touch costs
  // a page of 4 KB, not one of 2 MB.
  enum class Pages : uint8_t { kLarge, kSmall };
  static Result<Buffer> host(size_t bytes, Pages pages = Pages::kLarge);

  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    swap(other);
    return *this;
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() {
    if (data_ != nullptr) deleter_(data_, bytes_);
  }

  std::byte* data() const { return data_; }
  size_t size() const { return bytes_; }
  MutableBytes bytes() const { return {data_, bytes_}; }
  DeviceId device() const { return device_; }

 private:
  void swap(Buffer& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(device_, other.device_);
    std::swap(deleter_, other.deleter_);
  }

  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
  DeviceId device_;
  Deleter deleter_ = nullptr;
};

}  // namespace bolide
