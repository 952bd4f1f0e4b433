// Bolide's C++ API: open a model, complete a text or answer a chat, token by token.
//
//   auto model = bolide::LanguageModel::open("model.gguf");
//   if (!model) return fail(model.status().message);
//   auto answer = model->chat({{"user", "Why is the sky blue?"}}, {}, [](std::string_view text) { std::cout << text;
//   });
//
// Errors: no function throws one. What can fail returns an Expected, which holds a value or a Status whose message says
// in a sentence or two which file or setting is wrong, why, and the remedy.
// Threads: a LanguageModel is used by one thread at a time, not always the same; models do not share anything, so each
// may have its own thread. Plain structs are values. Callbacks run on the calling thread, inside the call.
// Stability: names in this header stay; structs may gain members, so set members by name.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace bolide {

enum class StatusCode : uint8_t {
  kOk,
  kInvalid,      // the input is wrong: a file, an option, a text
  kNotFound,     // a file or a name does not exist
  kUnsupported,  // well-formed, but Bolide cannot do it
  kOutOfMemory,
  kCancelled,
  kDeadline,
  kUnavailable,  // a device or library is not there
  kOverloaded,   // too much is asked at once; later it can be answered
  kInternal,     // a fault of Bolide's own
};

struct Status {
  StatusCode code = StatusCode::kOk;
  std::string message;  // for people; empty if ok

  bool ok() const { return code == StatusCode::kOk; }
};

// A value, or the Status that says why there is none. Asking for a value that is not there ends the program with the
// status's message.
template <class T>
class [[nodiscard]] Expected {
 public:
  Expected(T value) : value_(std::move(value)) {}          // NOLINT(google-explicit-constructor)
  Expected(Status status) : status_(std::move(status)) {}  // NOLINT(google-explicit-constructor)

  bool has_value() const { return value_.has_value(); }
  explicit operator bool() const { return has_value(); }
  const Status& status() const { return status_; }  // ok if there is a value

  T& value() & { return present(), *value_; }
  const T& value() const& { return present(), *value_; }
  T&& value() && { return present(), *std::move(value_); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  void present() const {
    if (value_.has_value()) return;
    std::fprintf(stderr, "bolide: a value was asked of an error: %s\n", status_.message.c_str());
    std::abort();
  }

  std::optional<T> value_;
  Status status_;
};

// How a model is opened. Text options take the words that the program's flags of the same name take; empty: the
// default.
struct OpenOptions {
  int threads = 0;               // 0: the cores this process's control group may use
  int context = 0;               // tokens that prompt and answer may have; 0: the model's own, at most 4096
  std::string isa;               // use no instruction set above: scalar, avx2, avx512, vnni, amx
  std::string dtype;             // arithmetic of matrix products: auto, f32, bf16, int8
  std::string kv_type;           // elements of the KV cache: bf16, f32; on GPUs fp8 too
  bool deterministic = false;    // bits of an answer do not depend on how its tokens were grouped into steps
  std::filesystem::path config;  // read in place of a model folder's config.json
  // Called while weights are packed, with what is done of how many.
  std::function<void(size_t done, size_t total)> on_progress;
};

// How tokens are drawn. What is not set comes from the checkpoint's generation_config.json, else the answer is greedy;
// top_k, top_p or min_p without a temperature mean temperature 1.
struct SamplingOptions {
  std::optional<float> temperature;         // 0 to 100; 0: always the likeliest token
  std::optional<int32_t> top_k;             // at least 0; 0: all
  std::optional<float> top_p;               // 0 to 1
  std::optional<float> min_p;               // 0 to 1
  std::optional<float> repetition_penalty;  // 0.01 to 100; 1: none
  std::optional<float> presence_penalty;    // -100 to 100
  std::optional<float> frequency_penalty;   // -100 to 100
  uint64_t seed = 0;                        // of the random draws
};

struct GenerateOptions {
  SamplingOptions sampling;
  int32_t max_tokens = 0;         // of the answer; 0: until the context is full
  std::vector<std::string> stop;  // the answer ends before the first of these
  // Set from anywhere (a signal handler, another thread): the answer ends within the step that is running (on a GPU:
  // after it).
  const std::atomic<bool>* cancel = nullptr;
};

enum class Finish : uint8_t {
  kStop,    // the model ended its text, or a stop string came
  kLength,  // max_tokens, or the context is full
  kCancelled,
};

struct Timings {
  int32_t prompt_tokens = 0;     // of the prompt
  int32_t computed_tokens = 0;   // of them computed; the others were in the cache from the last call
  int32_t generated_tokens = 0;  // steps of the answer; an end-of-text token counts
  double prompt_ms = 0;          // from the call to the first token
  double decode_ms = 0;          // from the first token to the last
};

struct Answer {
  std::string text;             // valid UTF-8
  std::vector<int32_t> tokens;  // [generated], without the end-of-text token
  std::vector<float> logprobs;  // [generated] natural logarithm of each token's probability
  Finish finish = Finish::kStop;
  Timings timings;
};

struct Message {
  std::string role;  // "system", "user", "assistant", or what the model's template knows
  std::string content;
};

struct ModelInfo {
  std::string name;
  std::string format;   // "gguf", "safetensors", "engine"
  std::string machine;  // what it runs on, for people
  std::string isa;      // instruction set in use
  int threads = 1;
  int32_t context = 0;  // tokens that prompt and answer may have together
  int32_t vocab = 0;    // ids are 0 to vocab - 1
  bool has_chat_template = false;
  double load_ms = 0;
};

// Sees each piece of the answer as soon as it is certain: valid UTF-8, never half a character. Must not throw.
using TextCallback = std::function<void(std::string_view text)>;

// A model that is loaded and planned, with one KV cache: a call whose prompt begins as the last call's prompt and
// answer computes only the rest, so a conversation costs its new tokens.
class LanguageModel {
 public:
  // `path`: a GGUF file (or the first of a split one), a Hugging Face folder, or an engine.
  static Expected<LanguageModel> open(const std::filesystem::path& path, const OpenOptions& options = {});

  LanguageModel(LanguageModel&&) noexcept;
  LanguageModel& operator=(LanguageModel&&) noexcept;
  ~LanguageModel();

  // Goes on from `prompt` as it stands: no chat template. Special tokens written in it become their ids.
  Expected<Answer> complete(std::string_view prompt, const GenerateOptions& options = {},
                            const TextCallback& on_text = nullptr);
  // Answers the last message through the model's chat template; without one (ModelInfo::has_chat_template) the
  // messages' contents follow each other as they are. At least one message.
  Expected<Answer> chat(const std::vector<Message>& messages, const GenerateOptions& options = {},
                        const TextCallback& on_text = nullptr);
  // The same from token ids: [n] with n at least 1 and less than the context, each in the vocabulary.
  Expected<Answer> generate(std::span<const int32_t> prompt, const GenerateOptions& options = {},
                            const TextCallback& on_text = nullptr);

  // The text that `chat` reads, up to where the answer begins.
  Expected<std::string> render(const std::vector<Message>& messages) const;
  // `add_special`: with what the tokenizer puts around a text (a beginning token, as a rule). kInvalid if `text` is not
  // UTF-8.
  Expected<std::vector<int32_t>> tokenize(std::string_view text, bool add_special = true) const;
  // Ids outside the vocabulary are skipped; always valid UTF-8.
  std::string detokenize(std::span<const int32_t> tokens, bool skip_special = false) const;

  const ModelInfo& info() const;

 private:
  struct Impl;
  explicit LanguageModel(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace bolide
