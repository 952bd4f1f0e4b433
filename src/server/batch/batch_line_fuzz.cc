// Lines of a batch: the first byte picks requests or answers. What was read as a request is written as an answer, which
// must be read again.
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "server/batch/batch_line.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace bolide::server;  // NOLINT(google-build-using-namespace)
  if (size == 0) return 0;
  const std::string_view line(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] % 2 == 1) {
    (void)parse_answer_line(line).has_value();
    return 0;
  }
  const auto request = parse_batch_line(line);
  if (!request) return 0;
  const std::string answer = write_answer_line(request->custom_id, {400, {}, "{}"});
  const auto again = parse_answer_line(answer);
  BOLIDE_CHECK(again.has_value() && again->custom_id == request->custom_id && !again->answered, "{}", answer);
  return 0;
}
