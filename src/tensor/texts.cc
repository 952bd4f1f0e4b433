#include "tensor/texts.h"

namespace bolide {

size_t text_bytes(const Tensor& tensor) {
  if (!tensor.is_string()) return 0;
  const auto texts = tensor.as<std::string>();
  size_t bytes = texts.size() * sizeof(std::string);
  for (const std::string& text : texts) bytes += text.size();
  return bytes;
}

size_t text_bytes(const AnyValue& value) {
  if (const Tensor* tensor = value.tensor()) return text_bytes(*tensor);
  size_t bytes = 0;
  if (const ValueSequence* sequence = value.sequence())
    for (const AnyValue& item : sequence->items) bytes += text_bytes(item);
  return bytes;
}

}  // namespace bolide
