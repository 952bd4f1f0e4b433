// Configuration files at random: an error or options, and what is written again reads as the same.
#include <cstdint>

#include "base/check.h"
#include "cli/config_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace bolide::cli;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto file = parse_config(text, "fuzz");
  if (!file) return 0;
  const auto again = parse_config(config_text({}, file->models), "again");
  BOLIDE_CHECK(again.has_value() && again->models == file->models);
  return 0;
}
