#include "tune/tuner.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "tune/timing_cache.h"

namespace bolide {
namespace {

// Times by candidate and round; a difference below 0 is an error.
class Fake final : public Tunable {
 public:
  std::vector<std::vector<double>> times;
  std::vector<double> differences;
  std::vector<int> asked;

  int candidates() const override { return static_cast<int>(times.size()); }
  Tactic tactic(int candidate) const override {
    Tactic tactic;
    tactic.bytes[0] = static_cast<std::byte>(candidate);
    return tactic;
  }
  Result<double> difference(int candidate) override {
    const double value = differences.empty() ? 0 : differences[static_cast<size_t>(candidate)];
    if (value < 0) return error(Code::kUnsupported, "no");
    return value;
  }
  Result<double> seconds(int candidate) override {
    asked.resize(times.size());
    const auto& its = times[static_cast<size_t>(candidate)];
    return its[std::min(its.size() - 1, static_cast<size_t>(asked[static_cast<size_t>(candidate)]++))];
  }
  double flops() const override { return 1; }
};

Tuned tuned(Fake& fake) {
  auto result = tune(fake);
  EXPECT_TRUE(result.has_value());
  return std::move(result).value_or(Tuned{});
}

TEST(Tuner, TakesTheFastest) {
  Fake fake;
  fake.times = {{1.0}, {0.9}, {0.8}, {0.85}};
  const Tuned result = tuned(fake);
  EXPECT_EQ(result.candidate, 2);
  EXPECT_EQ(result.tactic.bytes[0], std::byte{2});
  EXPECT_DOUBLE_EQ(result.seconds, 0.8);
  EXPECT_DOUBLE_EQ(result.untuned_seconds, 1.0);
  EXPECT_EQ(result.measured, 4);
}

TEST(Tuner, KeepsWhatIsThereForLess) {
  Fake fake;
  fake.times = {{1.0}, {0.975}, {1.0}};
  EXPECT_EQ(tuned(fake).candidate, 0);
}

// Faster in one round only is luck, and slower in the first is not measured again.
TEST(Tuner, WantsEveryRound) {
  Fake fake;
  fake.times = {{1.0, 1.0}, {0.5, 0.99}, {1.2, 0.1}};
  EXPECT_EQ(tuned(fake).candidate, 0);
  EXPECT_EQ(fake.asked, (std::vector<int>{2, 2, 1}));
}

TEST(Tuner, RefusesWhatIsWrong) {
  Fake fake;
  fake.times = {{1.0}, {0.1}, {0.2}, {0.3}, {0.9}};
  fake.differences = {0, 0.5, -1, NAN, 0.001};
  const Tuned result = tuned(fake);
  EXPECT_EQ(result.candidate, 4);
  EXPECT_EQ(result.refused, 3);
}

TEST(Tuner, OneCandidateIsKept) {
  Fake fake;
  fake.times = {{2.0}};
  const Tuned result = tuned(fake);
  EXPECT_EQ(result.candidate, 0);
  EXPECT_DOUBLE_EQ(result.untuned_seconds, 2.0);
}

struct TimingFile : testing::Test {
  std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("bolide_tuning_" + std::to_string(::getpid()));
  std::filesystem::path path = folder / "deep" / "tuning.json";
  ~TimingFile() override { std::filesystem::remove_all(folder); }
  void write(std::string_view text) const {
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
};

TEST_F(TimingFile, ComesBack) {
  TimingCache cache("machine a");
  TimingCache::Entry entry{{}, 1.5, 2.25};
  for (size_t i = 0; i < entry.tactic.bytes.size(); ++i) entry.tactic.bytes[i] = static_cast<std::byte>(i * 7 + 200);
  cache.put("a \"key\"", entry);
  cache.put("b", {});
  ASSERT_TRUE(cache.write(path).has_value());
  const TimingCache again = TimingCache::read(path, "machine a");
  ASSERT_EQ(again.size(), 2u);
  ASSERT_NE(again.find("a \"key\""), nullptr);
  EXPECT_EQ(again.find("a \"key\"")->tactic.bytes, entry.tactic.bytes);
  EXPECT_EQ(again.find("a \"key\"")->untuned_us, 2.25);
  EXPECT_EQ(again.find("c"), nullptr);
  EXPECT_EQ(TimingCache::read(path, "machine b").size(), 0u);
}

TEST_F(TimingFile, AbsentOrBrokenIsEmpty) {
  EXPECT_EQ(TimingCache::read(path, "m").size(), 0u);
  const std::string good(128, 'a');
  for (const std::string& text :
       {std::string(), std::string("["), std::string("[1]"), std::string(R"({"machine": 1})"),
        std::string(R"({"machine": "m", "entries": []})"), std::string(R"({"machine": "m", "entries": {"k": 1}})"),
        std::string(R"({"machine": "m", "entries": {"k": {"us": "1", "untuned_us": 1, "tactic": ""}}})"),
        R"({"machine": "m", "entries": {"j": {"us": 1, "untuned_us": 1, "tactic": ")" + good +
            R"("}, "k": {"us": 1, "untuned_us": 1, "tactic": "ag"}}})"}) {
    write(text);
    EXPECT_EQ(TimingCache::read(path, "m").size(), 0u) << text;
  }
  write(R"({"machine": "m", "entries": {"j": {"us": 1, "untuned_us": 1, "tactic": ")" + good + R"("}}})");
  EXPECT_EQ(TimingCache::read(path, "m").size(), 1u);
}

TEST_F(TimingFile, OthersFilesAreNotReplaced) {
  EXPECT_TRUE(TimingCache::check_is_ours(path).has_value());
  for (const std::string_view text : {"", "my notes", "{}", R"({"model_type": "llama"})"}) {
    write(text);
    const auto ours = TimingCache::check_is_ours(path);
    ASSERT_FALSE(ours.has_value()) << text;
    EXPECT_NE(ours.error().text.find(path.string()), std::string::npos) << ours.error().text;
  }
  ASSERT_TRUE(TimingCache("m").write(path).has_value());
  EXPECT_TRUE(TimingCache::check_is_ours(path).has_value());
}

TEST(TimingCache, NamesTheMachine) {
  DeviceInfo info;
  info.gpu = GpuInfo{.name = "NVIDIA H200", .compute_capability = 90, .multiprocessors = 132, .driver_version = 13000};
  EXPECT_EQ(tuning_file_name(info), "tuning-nvidia-h200.json");
  const std::string before = tuning_fingerprint(info);
  info.gpu->cublaslt_version = 130101;
  EXPECT_NE(tuning_fingerprint(info), before);
}

}  // namespace
}  // namespace bolide
