// Any bytes: an error, or a header whose values and tensors all lie in the bytes.
#include "formats/gguf.h"
#include "formats/gguf_tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace bolide;
  const Bytes file(reinterpret_cast<const std::byte*>(data), size);
  const std::string label = "fuzz.gguf";
  const auto header = GgufHeader::parse(file, label);
  if (!header) return 0;
  for (const auto& [key, value] : header->metadata) {
    (void)value.integer();
    (void)value.number();
    (void)value.boolean();
    (void)value.string();
    (void)value.strings();
    (void)value.integers();
    (void)value.numbers();
    (void)value.arrays();
  }
  for (const GgufTensor& tensor : header->tensors) {
    BOLIDE_CHECK(tensor.offset <= size && tensor.size <= size - tensor.offset, "tensor outside the file");
    BOLIDE_CHECK(tensor.size == tensor.info.byte_size(), "size {} of {}", tensor.size, tensor.info.byte_size());
  }
  (void)read_gguf_tokenizer(*header, label);
  return 0;
}
