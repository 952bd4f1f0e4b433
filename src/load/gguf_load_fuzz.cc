// Any bytes as a GGUF file, all the way to a loaded model whose every tensor is opened.
#include "formats/gguf.h"
#include "load/load.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace bolide;
  auto source = GgufSource::from_bytes({reinterpret_cast<const std::byte*>(data), size}, "fuzz.gguf");
  if (!source) return 0;
  const auto model = load_gguf(*std::move(source));
  if (!model) return 0;
  (void)model->config.rope();
  (void)model->config.quantization();
  for (const std::string& name : model->weights->names()) {
    const auto weight = model->weights->open(name);
    if (weight) BOLIDE_CHECK(weight->bytes.size() == weight->info.byte_size(), "{}", name);
  }
  return 0;
}
