#include "tensor/tensor.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include "base/memory.h"
#include "base/sanitizers.h"

namespace bolide {
namespace {

TEST(Buffer, ARefusalNamesTheLimitOfAddresses) {
#if BOLIDE_ADDRESS_SANITIZER
  GTEST_SKIP() << "the sanitizer itself maps memory";
#endif
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_AS, &before), 0);
  if (before.rlim_cur != RLIM_INFINITY) GTEST_SKIP() << "the tests themselves have a limit";
  const size_t bytes = 48u << 20;
  if (available_memory_bytes() < bytes) GTEST_SKIP() << "this machine has too little memory";
  const rlimit little{32u << 20, before.rlim_max};  // less than the test has mapped already
  ASSERT_EQ(::setrlimit(RLIMIT_AS, &little), 0);
  const auto refused = Buffer::host(bytes);
  ASSERT_EQ(::setrlimit(RLIMIT_AS, &before), 0);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, Code::kOutOfMemory);
  EXPECT_NE(refused.error().text.find("limited to 33.6 MB: RLIMIT_AS"), std::string::npos) << refused.error().text;
  EXPECT_EQ(refused.error().text.find("available"), std::string::npos) << refused.error().text;
  EXPECT_TRUE(Buffer::host(bytes).has_value());
}

}  // namespace
}  // namespace bolide
