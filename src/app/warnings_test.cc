// What a user is told at opening although nothing is refused.
#include <gtest/gtest.h>

#include "app/conversation.h"
#include "app/model_flags.h"
#include "app/test_models.h"
#include "base/log.h"

namespace bolide {
namespace {

using namespace test;

// The warnings while it lives, a line each.
class Warnings : public log::Sink {
 public:
  Warnings() { log::set_sink(this, log::Level::kWarning); }
  ~Warnings() override { log::set_sink(nullptr, log::Level::kWarning); }
  void write(const log::Record& record) override { lines.push_back(to_line(record, log::LineFormat::kKeyValue)); }
  std::vector<std::string> lines;
};

std::vector<std::string> warnings_of(const ModelOptions& options) {
  Warnings warnings;
  open("llama-bias", options);
  return warnings.lines;
}

TEST(Warnings, AContextBeyondTheModelsOwn) {
  ModelOptions options = exact_options();
  options.context = 256;
  EXPECT_TRUE(warnings_of(options).empty());
  options.context = 257;
  const auto lines = warnings_of(options);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_NE(lines[0].find("context=257 made_for=256"), std::string::npos) << lines[0];
}

TEST(Warnings, ScaledRotaryEmbeddingsReachFurther) {
  ModelOptions options = exact_options();
  for (const char* name : {"llama-rope-dynamic", "llama-rope-yarn"}) {
    const ModelConfig config = open(name, options).config;
    const auto rope = config.rope();
    ASSERT_TRUE(rope.has_value());
    const auto reach = static_cast<int32_t>(static_cast<double>(rope->original_context) * rope->factor);
    Warnings warnings;
    options.context = std::max(reach, static_cast<int32_t>(config.integer_or("max_position_embeddings", 0).value()));
    open(name, options);
    EXPECT_TRUE(warnings.lines.empty()) << name << ": " << warnings.lines[0];
    ++options.context;
    open(name, options);
    EXPECT_EQ(warnings.lines.size(), 1u) << name;
  }
}

TEST(Warnings, FarMoreThreadsThanCores) {
  ModelOptions options = exact_options();
  options.threads = 4 * detect_cpu().cores() + 1;
  const auto lines = warnings_of(options);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_NE(lines[0].find("far more threads than cores"), std::string::npos) << lines[0];
}

TEST(Warnings, BlocksLargerThanTheContextAreAtFaultForTheirMemory) {
  ModelOptions options = exact_options();
  options.block_tokens = INT32_MAX;
  const auto model = open_model(golden_model("llama-bias"), options);
  ASSERT_FALSE(model.has_value());
  EXPECT_NE(model.error().text.find("a smaller --block-tokens"), std::string::npos) << model.error().text;
  EXPECT_EQ(model.error().text.find("--context"), std::string::npos) << model.error().text;
}

TEST(ModelFlags, PassesMayHaveBlanksAroundTheirNames) {
  ModelConfigFlags flags;
  flags.skip_passes = " merge_linears , fuse_add_norm";
  const auto options = to_model_options(flags);
  ASSERT_TRUE(options.has_value());
  EXPECT_EQ(options->skip_passes, (std::set<std::string>{"merge_linears", "fuse_add_norm"}));
}

TEST(ModelFlags, CachesOfEightBitsAreForGpus) {
  ModelConfigFlags flags;
  flags.kv_type = "fp8", flags.device = "cpu";
  const auto refused = to_model_options(flags);
  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(refused.error().text.find("--kv-type fp8"), std::string::npos) << refused.error().text;
  flags.device = "cuda:1";
  const auto options = to_model_options(flags);
  ASSERT_TRUE(options.has_value()) << options.error().text;
  EXPECT_EQ(options->kv_dtype, DType::kF8E4M3);
}

}  // namespace
}  // namespace bolide
