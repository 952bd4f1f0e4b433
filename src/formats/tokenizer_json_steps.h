// The parts of tokenizer.json that are lists of steps; used by tokenizer_json.cc alone.
#pragma once

#include "formats/json_object.h"
#include "formats/tokenizer_spec.h"

namespace bolide {

inline constexpr int kSequenceDepthMax = 16;
inline constexpr size_t kStepsMax = 256;

Result<> parse_normalizer(const nlohmann::json& value, std::string path, int depth, std::vector<normalizer::Step>& out);
Result<> parse_pretokenizer(const nlohmann::json& value, std::string path, int depth,
                            std::vector<pretokenizer::Step>& out);
Result<> parse_decoder(const nlohmann::json& value, std::string path, int depth, std::vector<decoder::Step>& out);
Result<> parse_postprocessor(const nlohmann::json& value, std::string path, int depth, std::vector<PostProcessor>& out);

}  // namespace bolide
