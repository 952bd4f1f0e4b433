#include "formats/tokenizer_gguf_pre.h"

#include <algorithm>

// The expressions are those in the tokenizer.json files of the models that the names stand for. Where llama.cpp spells
// a class out because its own matcher lacks it, the original is used here.
namespace bolide {
namespace {

using Names = std::string_view;

constexpr std::string_view kGpt2 = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

#define BOLIDE_CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define BOLIDE_WORD R"([^\r\n\p{L}\p{N}]?\p{L}+)"
#define BOLIDE_SYMBOLS R"( ?[^\s\p{L}\p{N}]+[\r\n]*)"
#define BOLIDE_SPACES R"(\s*[\r\n]+|\s+(?!\S)|\s+)"
#define BOLIDE_CASED_WORDS(SUFFIX)                                                         \
  R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)" SUFFIX \
  R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)" SUFFIX

constexpr std::string_view kDefault[] = {R"([\p{P}\$\+<=>\^~\|]+)", kGpt2, R"(\p{N}+)", "[0-9][0-9][0-9]"};
constexpr std::string_view kGpt2Only[] = {kGpt2};
constexpr std::string_view kDigitsGpt2[] = {R"(\p{N})", kGpt2};
constexpr std::string_view kLlama3[] = {BOLIDE_CONTRACTIONS "|" BOLIDE_WORD R"(|\p{N}{1,3}|)" BOLIDE_SYMBOLS
                                                            "|" BOLIDE_SPACES};
constexpr std::string_view kQwen2[] = {BOLIDE_CONTRACTIONS "|" BOLIDE_WORD R"(|\p{N}|)" BOLIDE_SYMBOLS
                                                           "|" BOLIDE_SPACES};
constexpr std::string_view kQwen35[] = {
    BOLIDE_CONTRACTIONS R"(|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|)" BOLIDE_SPACES};
constexpr std::string_view kDeepseekLlm[] = {
    R"([\r\n])",
    R"(\s?[\p{Lu}\p{Ll}\p{Lt}]+)",
    R"(\s?[!-/:-~\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF5E}\x{2018}-\x{201F}\x{3000}-\x{3002}]+)",
    R"(\s+$)",
    R"([\x{0800}-\x{9FA5}\x{AC00}-\x{D7FF}]+)",
    R"(\p{N}+)",
};
constexpr std::string_view kDeepseekCoder[] = {
    R"([\r\n])", R"(\s?\p{L}+)", R"(\s?\p{P}+)", R"([\x{0800}-\x{9FA5}\x{AC00}-\x{D7FF}]+)", R"(\p{N})",
};
constexpr std::string_view kDeepseekV3[] = {
    R"(\p{N}{1,3})",
    R"([\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+)",
    R"([!-/:-@\[-`{-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|)" BOLIDE_SPACES,
};
constexpr std::string_view kFalcon[] = {R"([\p{P}\$\+<=>\^~\|`]+)", kGpt2, "[0-9][0-9][0-9]"};
constexpr std::string_view kBloom[] = {R"( ?[^(\s|.,!?…。，、।۔،)]+)"};
constexpr std::string_view kViking[] = {R"( ?[^(\s|.,!?…。，、।۔،)]+)", R"(\p{N})"};
constexpr std::string_view kTekken[] = {BOLIDE_CASED_WORDS("") R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|)" BOLIDE_SPACES};
constexpr std::string_view kGpt4o[] = {
    BOLIDE_CASED_WORDS(BOLIDE_CONTRACTIONS "?") R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|)" BOLIDE_SPACES};
constexpr std::string_view kSuperBpe[] = {R"(\p{N}+)", R"((?=(\d{3})+(?!\d)))"};
constexpr std::string_view kBailing[] = {
    R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)"};
constexpr std::string_view kSeedCoder[] = {BOLIDE_CONTRACTIONS "|" BOLIDE_WORD
                                                               R"(|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|)" BOLIDE_SPACES};

#undef BOLIDE_CONTRACTIONS
#undef BOLIDE_WORD
#undef BOLIDE_SYMBOLS
#undef BOLIDE_SPACES
#undef BOLIDE_CASED_WORDS

constexpr Names kDefaultNames[] = {"default", ""};
constexpr Names kGpt2Names[] = {"gpt-2",      "gpt2",       "phi-2",           "mpt",          "olmo",
                                "jais",       "trillion",   "granite-docling", "jina-es",      "jina-de",
                                "jina-v1-en", "jina-v2-es", "jina-v2-de",      "jina-v2-code", "roberta-bpe",
                                "gigachat",   "a.x-4.0",    "mellum",          "modern-bert",  "exaone4"};
constexpr Names kDigitsNames[] = {"starcoder", "refact", "command-r", "smollm", "codeshell", "exaone", "minerva-7b"};
constexpr Names kLlama3Names[] = {"llama3",    "llama-v3", "llama-bpe", "falcon3",
                                  "falcon-h1", "pixtral",  "midm-2.0",  "lfm2"};
constexpr Names kDbrxNames[] = {"dbrx", "smaug-bpe", "glm4", "chatglm-bpe"};
constexpr Names kQwen2Names[] = {"qwen2"};
constexpr Names kQwen2LikeNames[] = {"deepseek-r1-qwen", "stablelm2", "megrez", "hunyuan",
                                     "solar-open",       "grok-2",    "kormo"};
constexpr Names kQwen35Names[] = {"qwen35"};
constexpr Names kDeepseekLlmNames[] = {"deepseek-llm"};
constexpr Names kDeepseekCoderNames[] = {"deepseek-coder"};
constexpr Names kDeepseekV3Names[] = {"deepseek-v3", "hunyuan-dense"};
constexpr Names kFalconNames[] = {"falcon"};
constexpr Names kBloomNames[] = {"bloom", "poro-chat", "gpt3-finnish"};
constexpr Names kVikingNames[] = {"viking"};
constexpr Names kTekkenNames[] = {"tekken"};
constexpr Names kGpt4oNames[] = {"gpt-4o", "llama4", "minimax-m2"};
constexpr Names kSuperBpeNames[] = {"superbpe"};
constexpr Names kBailingNames[] = {"bailingmoe", "bailingmoe2", "llada-moe"};
constexpr Names kSeedCoderNames[] = {"seed-coder"};

constexpr GgufPretokenizer kPretokenizers[] = {
    {kDefaultNames, kDefault},
    {kGpt2Names, kGpt2Only},
    {kDigitsNames, kDigitsGpt2},
    {kLlama3Names, kLlama3, /*ignore_merges=*/true, /*add_bos=*/true},
    {kDbrxNames, kLlama3},
    {kQwen2Names, kQwen2, false, false, /*nfc=*/true},
    {kQwen2LikeNames, kQwen2},
    {kQwen35Names, kQwen35},
    {kDeepseekLlmNames, kDeepseekLlm},
    {kDeepseekCoderNames, kDeepseekCoder},
    {kDeepseekV3Names, kDeepseekV3},
    {kFalconNames, kFalcon},
    {kBloomNames, kBloom},
    {kVikingNames, kViking},
    {kTekkenNames, kTekken, /*ignore_merges=*/true, /*add_bos=*/true},
    {kGpt4oNames, kGpt4o},
    {kSuperBpeNames, kSuperBpe},
    {kBailingNames, kBailing},
    {kSeedCoderNames, kSeedCoder},
};

}  // namespace

const GgufPretokenizer* find_gguf_pretokenizer(std::string_view name) {
  for (const GgufPretokenizer& entry : kPretokenizers) {
    if (std::find(entry.names.begin(), entry.names.end(), name) != entry.names.end()) return &entry;
  }
  return nullptr;
}

}  // namespace bolide
