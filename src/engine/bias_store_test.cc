#include "engine/bias_store.h"

#include <gtest/gtest.h>

#include <random>

namespace bolide {
namespace {

// Requests come and go, some of them in every step; whatever was taken for others meanwhile, each finds its own pairs,
// and those of one step are there at once.
TEST(BiasStore, EveryStepFindsThePairsOfItsRequests) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const auto device = make_cpu_device(1, std::nullopt);
  ASSERT_TRUE(device.has_value());
  const auto stream = (*device)->make_stream();
  ASSERT_TRUE(stream.has_value());
  constexpr size_t kSequences = 4;
  BiasStore store(**device, kSequences);
  std::vector<std::shared_ptr<const LogitBiases>> requests(9);
  const auto renew = [&](size_t at) {
    LogitBiases made;
    made.pairs.resize(1 + random() % static_cast<size_t>(kTokenBiasesMax));
    for (TokenBias& pair : made.pairs) pair = {static_cast<int32_t>(random()), static_cast<float>(random())};
    requests[at] = std::make_shared<const LogitBiases>(std::move(made));
  };
  for (size_t at = 0; at < requests.size(); ++at) renew(at);
  int same = 0;
  std::vector<const TokenBias*> last(requests.size());
  for (int step = 0; step < 300; ++step) {
    store.begin_step();
    if (random() % 3 == 0) renew(random() % requests.size());
    std::vector<std::pair<size_t, const TokenBias*>> found;
    for (size_t i = 0; i < kSequences; ++i) {
      const size_t at = random() % requests.size();
      const auto place = store.find(requests[at], **stream);
      ASSERT_TRUE(place.has_value());
      found.emplace_back(at, *place);
    }
    ASSERT_TRUE((*stream)->synchronize().has_value());
    for (const auto& [at, place] : found) {
      same += last[at] == place ? 1 : 0;
      last[at] = place;
      const auto& pairs = requests[at]->pairs;
      for (size_t i = 0; i < pairs.size(); ++i) {
        ASSERT_EQ(place[i].id, pairs[i].id);
        ASSERT_EQ(place[i].bias, pairs[i].bias);
      }
    }
  }
  EXPECT_GT(same, 100) << "what is there is not sent again";
}

}  // namespace
}  // namespace bolide
