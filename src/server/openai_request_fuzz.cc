// Bodies of OpenAI's routes: the first byte picks the route.
#include <cstdint>
#include <string_view>

#include "server/openai_request.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace bolide::server;  // NOLINT(google-build-using-namespace)
  if (size == 0) return 0;
  const std::string_view body(reinterpret_cast<const char*>(data) + 1, size - 1);
  const RequestLimits limits;
  std::string param;
  switch (data[0] % 4) {
    case 0: (void)parse_chat_request(body, limits, &param).has_value(); break;
    case 1: (void)parse_completion_request(body, limits, &param).has_value(); break;
    case 2: (void)parse_tokenize_request(body, limits, &param).has_value(); break;
    default: (void)parse_detokenize_request(body, limits, &param).has_value(); break;
  }
  return 0;
}
