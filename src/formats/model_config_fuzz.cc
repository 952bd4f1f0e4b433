// Any bytes as config.json and as generation_config.json: every view of them is a value or an error.
#include "formats/model_config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace bolide;
  const auto config = ModelConfig::parse(std::string_view(reinterpret_cast<const char*>(data), size), "fuzz.json");
  if (!config) return 0;
  for (const std::string& key : config->keys()) {
    (void)config->integer(key);
    (void)config->number(key);
    (void)config->boolean(key);
    (void)config->string(key);
    (void)config->integers(key);
    (void)config->numbers(key);
    (void)config->strings(key);
    (void)config->object(key);
  }
  (void)config->architecture();
  (void)config->dtype();
  (void)config->layer_types();
  (void)config->rope();
  (void)config->rope("sliding_attention");
  (void)config->quantization();
  (void)config->to_text();
  (void)read_generation_config(&*config, *config);
  return 0;
}
