// The committed golden checkpoints, and logits of token lists by any chunking: for tests only.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "app/model.h"

namespace bolide::test {

inline std::filesystem::path golden_model(const std::string& name) {
  const auto folder = std::filesystem::path(BOLIDE_SOURCE_DIR) / "tests" / "golden" / "models" / name;
  return std::filesystem::exists(folder / "model.gguf") ? folder / "model.gguf" : folder;
}

// float32 everywhere, one thread, small steps.
inline ModelOptions exact_options() {
  ModelOptions options;
  options.threads = 1;
  options.dtype = ComputeMode::kF32;
  options.kv_dtype = DType::kF32;
  options.context = 160;
  options.tokens_per_step = 128;
  return options;
}

inline Model open_path(const std::filesystem::path& path, const ModelOptions& options) {
  auto model = open_model(path, options);
  if (!model) {
    ADD_FAILURE() << model.error().text;
    std::abort();
  }
  return std::move(*model);
}
inline Model open(const std::string& name, const ModelOptions& options) {
  return open_path(golden_model(name), options);
}

inline std::vector<int32_t> random_tokens(const Model& model, size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<int32_t> tokens(count);
  for (int32_t& token : tokens) token = static_cast<int32_t>(random() % static_cast<uint64_t>(model.runner->vocab()));
  return tokens;
}

inline std::vector<float> row_of(const Model& model, int64_t row) {
  const TensorView logits = model.runner->logits().value();
  return {logits.row<float>(row), logits.row<float>(row) + logits.cols()};
}

inline void must(const Result<>& done) { ASSERT_TRUE(done.has_value()) << done.error().text; }

// Computes the sequence's remaining tokens in chunks (the last one repeats); logits of the last token.
inline std::vector<float> finish(Model& model, Sequence& sequence, const std::vector<int32_t>& chunks) {
  for (size_t i = 0; sequence.computed < sequence.size(); ++i) {
    const int32_t chunk = std::min(chunks[std::min(i, chunks.size() - 1)], sequence.size() - sequence.computed);
    const Work work{&sequence, chunk};
    const auto done = model.runner->step(std::span(&work, 1));
    EXPECT_TRUE(done.has_value()) << done.error().text;
    if (!done) return {};
  }
  return row_of(model, 0);
}

inline std::vector<float> logits_of(Model& model, const std::vector<int32_t>& tokens,
                                    const std::vector<int32_t>& chunks = {128}) {
  Sequence sequence;
  sequence.tokens = tokens;
  std::vector<float> logits = finish(model, sequence, chunks);
  model.runner->truncate(sequence, 0);
  return logits;
}

inline double relative(const std::vector<float>& got, const std::vector<float>& want) {
  if (got.size() != want.size() || want.empty()) return INFINITY;
  double error = 0, norm = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    error += (double{got[i]} - want[i]) * (double{got[i]} - want[i]);
    norm += double{want[i]} * want[i];
  }
  return std::sqrt(error / norm);
}

}  // namespace bolide::test
