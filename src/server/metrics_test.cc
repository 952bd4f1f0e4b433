// What /metrics says of the process itself.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "server/testing/fake_server.h"

namespace bolide::server {
namespace {

double value_of(const std::string& text, const std::string& name) {
  const size_t at = text.find("\n" + name + " ");
  return at == std::string::npos ? -1 : std::strtod(text.c_str() + at + name.size() + 2, nullptr);
}

TEST(Metrics, MemoryAndTimeOfTheProcess) {
  test::FakeServer server;
  const std::string before = test::get(server.port(), "/metrics").body;
  EXPECT_GT(value_of(before, "process_cpu_seconds_total"), 0) << before;
  const double resident = value_of(before, "process_resident_memory_bytes");
  EXPECT_GT(resident, 1 << 20) << before;
  constexpr size_t kBytes = 64u << 20;
  const std::vector<char> touched(kBytes, 1);
  const std::string after = test::get(server.port(), "/metrics").body;
  EXPECT_GT(value_of(after, "process_resident_memory_bytes"), resident + kBytes / 2.0) << touched.back();
}

}  // namespace
}  // namespace bolide::server
