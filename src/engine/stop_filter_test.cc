#include <gtest/gtest.h>

#include <random>

#include "engine/generator.h"

namespace bolide {
namespace {

// What must come out of a whole text: everything before the stop string that is complete first (the longest of those
// that end at the same place).
std::string cut(const std::string& text, const std::vector<std::string>& stops, bool* stopped) {
  for (size_t end = 1; end <= text.size(); ++end) {
    size_t longest = 0;
    for (const std::string& stop : stops)
      if (!stop.empty() && stop.size() <= end && text.compare(end - stop.size(), stop.size(), stop) == 0)
        longest = std::max(longest, stop.size());
    if (longest == 0) continue;
    *stopped = true;
    return text.substr(0, end - longest);
  }
  *stopped = false;
  return text;
}

std::string random_text(std::mt19937& random, size_t size_max) {
  std::string text(random() % (size_max + 1), ' ');
  for (char& c : text) c = static_cast<char>('a' + random() % 3);
  return text;
}

TEST(StopFilter, AnyPiecesGiveTheTextBeforeTheFirstStopString) {
  std::mt19937 random(11);
  int stops_found = 0;
  for (int round = 0; round < 20000; ++round) {
    std::vector<std::string> stops(random() % 4);
    for (std::string& stop : stops) stop = random_text(random, 5);
    const std::string text = random_text(random, 20);
    StopFilter filter(stops);
    std::string got;
    for (size_t at = 0; at < text.size();) {
      const size_t count = std::min<size_t>(random() % 6, text.size() - at);
      got += filter.push(text.substr(at, count));
      at += count;
      bool stopped_by_now = false;
      const std::string want_now = cut(text.substr(0, at), stops, &stopped_by_now);
      ASSERT_EQ(filter.stopped(), stopped_by_now);
      // What was shown is never taken back, and what is held back begins a stop string.
      ASSERT_TRUE(want_now.starts_with(got)) << got << " of " << want_now;
      ASSERT_LE(want_now.size() - got.size(), 4u);
    }
    got += filter.flush();
    bool stopped = false;
    ASSERT_EQ(got, cut(text, stops, &stopped)) << text;
    ASSERT_EQ(filter.stopped(), stopped);
    stops_found += stopped ? 1 : 0;
    if (stopped) {
      EXPECT_EQ(filter.flush(), "");
    }
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(stops_found, 1000);
}

TEST(StopFilter, HoldsBackOnlyWhatMayBecomeAStopString) {
  StopFilter filter({"</s>", "\nUser:"});
  EXPECT_EQ(filter.push("a < b"), "a < b");
  EXPECT_EQ(filter.push(" <"), " ");
  EXPECT_EQ(filter.push("/"), "");
  EXPECT_EQ(filter.push("p>\n"), "</p>");
  EXPECT_EQ(filter.push("User"), "");
  EXPECT_EQ(filter.push(": hello"), "");
  EXPECT_TRUE(filter.stopped());
}

}  // namespace
}  // namespace bolide
