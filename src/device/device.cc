#include "device/device.h"

namespace bolide {

Result<> copy_bytes(Stream& stream, MutableBytes dst, Bytes src) {
  BOLIDE_CHECK(dst.size() == src.size(), "a copy of {} bytes to {}", src.size(), dst.size());
  const Shape shape{static_cast<int64_t>(src.size())};
  return stream.copy(make_view(dst.data(), DType::kU8, shape),
                     make_view(const_cast<std::byte*>(src.data()), DType::kU8, shape));
}

}  // namespace bolide
