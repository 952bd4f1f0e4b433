#include "text/decoder.h"

#include <algorithm>
#include <utility>

#include "base/utf8.h"
#include "text/unicode.h"

namespace bolide {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

class Sink final : public DecodeStage {
 public:
  explicit Sink(std::string& out) : out_(out) {}
  void text(std::string_view fragment) override { out_ += fragment; }
  void end_token() override {}
  void finish() override {}

 private:
  std::string& out_;
};

// Without a decoder the library puts a space between tokens.
class JoinStage final : public DecodeStage {
 public:
  explicit JoinStage(DecodeStage& next) : next_(next) {}
  void text(std::string_view fragment) override {
    start();
    next_.text(fragment);
  }
  void end_token() override {
    start();
    fresh_ = true;
  }
  void finish() override { next_.finish(); }

 private:
  void start() {
    if (fresh_ && !first_) next_.text(" ");
    fresh_ = false;
    first_ = false;
  }
  DecodeStage& next_;
  bool fresh_ = true, first_ = true;
};

// A stage that needs whole tokens.
class TokenStage : public DecodeStage {
 public:
  explicit TokenStage(DecodeStage& next) : next_(next) {}
  void text(std::string_view fragment) final { token_ += fragment; }
  void end_token() final {
    token(token_);
    token_.clear();
  }
  void finish() override { next_.finish(); }

 protected:
  virtual void token(std::string& text) = 0;
  void emit(std::string_view text) {
    next_.text(text);
    next_.end_token();
  }
  DecodeStage& next_;

 private:
  std::string token_;
};

// All tokens' bytes together are one text, whose broken parts become U+FFFD.
class ByteLevelStage final : public TokenStage {
 public:
  using TokenStage::TokenStage;
  void finish() override {
    std::string repaired;
    append_utf8_lossy(repaired, bytes_, true);
    emit(repaired);
    next_.finish();
  }

 private:
  void token(std::string& text) override {
    const size_t before = bytes_.size();
    for (size_t at = 0; at < text.size();) {
      const Utf8Char c = decode_utf8(text, at);
      at += c.size;
      const int byte = unicode::char_to_byte(c.value);
      if (byte < 0) {  // not written in the byte alphabet: stands for itself
        bytes_.resize(before);
        bytes_ += text;
        break;
      }
      bytes_ += static_cast<char>(byte);
    }
    std::string repaired;
    const size_t used = append_utf8_lossy(repaired, bytes_, false);
    bytes_.erase(0, used);
    if (!repaired.empty()) next_.text(repaired);
  }
  std::string bytes_;
};

// A run of <0xHH> tokens is one text if its bytes are UTF-8, else as many U+FFFD: nothing of it is certain before the
// run ends.
class ByteFallbackStage final : public TokenStage {
 public:
  using TokenStage::TokenStage;
  void finish() override {
    flush();
    next_.finish();
  }

 private:
  static int hex(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
  }
  static int byte_of(std::string_view text) {
    if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>') return -1;
    const int low = hex(text[4]);
    const int high = text[3] == '+' ? 0 : hex(text[3]);  // the library's number parser allows a sign
    return low < 0 || high < 0 ? -1 : high * 16 + low;
  }
  void token(std::string& text) override {
    const int byte = byte_of(text);
    if (byte >= 0) {
      bytes_ += static_cast<char>(byte);
      return;
    }
    flush();
    emit(text);
  }
  void flush() {
    if (bytes_.empty()) return;
    if (utf8_invalid_at(bytes_) == kUtf8Valid) {
      emit(bytes_);
    } else {
      for (size_t i = 0; i < bytes_.size(); ++i) emit(kReplacement);
    }
    bytes_.clear();
  }
  std::string bytes_;
};

class FuseStage final : public DecodeStage {
 public:
  explicit FuseStage(DecodeStage& next) : next_(next) {}
  void text(std::string_view fragment) override { next_.text(fragment); }
  void end_token() override {}
  void finish() override {
    next_.end_token();
    next_.finish();
  }

 private:
  DecodeStage& next_;
};

class MetaspaceStage final : public DecodeStage {
 public:
  MetaspaceStage(const decoder::Metaspace& spec, DecodeStage& next)
      : next_(next), drop_(spec.scheme != PrependScheme::kNever) {
    append_utf8(mark_, spec.replacement);
  }
  void text(std::string_view fragment) override {
    std::string out;
    for (size_t at = 0; at < fragment.size();) {
      const size_t found = fragment.find(mark_, at);
      out += fragment.substr(at, found == std::string_view::npos ? found : found - at);
      if (found == std::string_view::npos) break;
      if (!first_ || !drop_) out += ' ';
      at = found + mark_.size();
    }
    next_.text(out);
  }
  void end_token() override {
    first_ = false;
    next_.end_token();
  }
  void finish() override { next_.finish(); }

 private:
  DecodeStage& next_;
  std::string mark_;
  bool drop_, first_ = true;
};

class ReplaceLiteralStage final : public DecodeStage {
 public:
  ReplaceLiteralStage(const decoder::Replace& spec, DecodeStage& next)
      : next_(next), wanted_(spec.pattern.text), content_(spec.content) {}
  void text(std::string_view fragment) override {
    held_ += fragment;
    std::string out;
    size_t at = 0;
    for (size_t found; (found = held_.find(wanted_, at)) != std::string::npos; at = found + wanted_.size()) {
      out.append(held_, at, found - at).append(content_);
    }
    // Keep what may be the beginning of the next match.
    size_t keep = std::min(held_.size() - at, wanted_.size() - 1);
    while (keep > 0 && std::string_view(held_).substr(held_.size() - keep) != std::string_view(wanted_).substr(0, keep))
      --keep;
    out.append(held_, at, held_.size() - keep - at);
    held_.erase(0, held_.size() - keep);
    if (!out.empty()) next_.text(out);
  }
  void end_token() override {
    if (!held_.empty()) next_.text(held_);
    held_.clear();
    next_.end_token();
  }
  void finish() override { next_.finish(); }

 private:
  DecodeStage& next_;
  std::string wanted_, content_, held_;
};

class ReplaceRegexStage final : public TokenStage {
 public:
  ReplaceRegexStage(const decoder::Replace& spec, const Regex& regex, DecodeStage& next)
      : TokenStage(next), regex_(regex), content_(spec.content) {}

 private:
  void token(std::string& text) override {
    std::string out;
    size_t at = 0;
    RegexMatches matches(regex_, text);
    while (!text.empty()) {
      const Result<RegexMatch> match = matches.next();
      if (!match || !match->found) break;  // given up: the rest stays as it is
      out.append(text, at, match->begin - at).append(content_);
      at = match->end;
    }
    out.append(text, at);
    emit(out);
  }
  const Regex& regex_;
  std::string content_;
};

class StripStage final : public DecodeStage {
 public:
  StripStage(const decoder::Strip& spec, DecodeStage& next) : next_(next), spec_(spec), start_left_(spec.start) {}
  void text(std::string_view fragment) override {
    std::string out;
    for (size_t at = 0; at < fragment.size();) {
      const Utf8Char c = decode_utf8(fragment, at);
      const bool wanted = c.value == spec_.content;
      if (wanted && start_left_ > 0) {
        --start_left_;
      } else if (wanted && held_ < spec_.stop) {
        ++held_;  // perhaps among the last
      } else {
        if (!wanted) {
          release(out);
          start_left_ = 0;
        }
        out += fragment.substr(at, c.size);  // of a long run the oldest is certain
      }
      at += c.size;
    }
    if (!out.empty()) next_.text(out);
  }
  void end_token() override {
    held_ = 0;
    start_left_ = spec_.start;
    next_.end_token();
  }
  void finish() override { next_.finish(); }

 private:
  void release(std::string& out) {
    for (; held_ > 0; --held_) append_utf8(out, spec_.content);
  }
  DecodeStage& next_;
  decoder::Strip spec_;
  int64_t start_left_;
  int64_t held_ = 0;
};

class WordPieceStage final : public TokenStage {
 public:
  WordPieceStage(const decoder::WordPiece& spec, DecodeStage& next) : TokenStage(next), spec_(spec) {}

 private:
  static void replace_all(std::string& text, std::string_view wanted, std::string_view content) {
    size_t at = text.find(wanted);
    if (at == std::string::npos) return;
    std::string out;
    size_t from = 0;
    for (; at != std::string::npos; at = text.find(wanted, from)) {
      out.append(text, from, at - from).append(content);
      from = at + wanted.size();
    }
    out.append(text, from);
    text.swap(out);
  }
  void token(std::string& text) override {
    if (!first_) {
      std::string changed = text.starts_with(spec_.prefix) ? "" : " ";
      changed.append(text, changed.empty() ? spec_.prefix.size() : 0);
      text.swap(changed);
    }
    first_ = false;
    if (spec_.cleanup) {
      constexpr std::pair<std::string_view, std::string_view> kRules[] = {
          {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},   {" n't", "n't"},
          {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
      for (const auto& [wanted, content] : kRules) replace_all(text, wanted, content);
    }
    emit(text);
  }
  decoder::WordPiece spec_;
  bool first_ = true;
};

// The end-of-word suffix is a space, except in the last token: one token is always held.
class BpeStage final : public TokenStage {
 public:
  BpeStage(const decoder::Bpe& spec, DecodeStage& next) : TokenStage(next), suffix_(spec.suffix) {}
  void finish() override {
    release("");
    next_.finish();
  }

 private:
  void token(std::string& text) override {
    release(" ");
    held_ = text;
    holding_ = true;
  }
  void release(std::string_view content) {
    if (!holding_) return;
    holding_ = false;
    if (suffix_.empty()) {
      // As the library's replace: an empty suffix is found before every character and at the end.
      std::string out(content);
      for (size_t at = 0; at < held_.size();) {
        const uint32_t size = decode_utf8(held_, at).size;
        out.append(held_, at, size).append(content);
        at += size;
      }
      return emit(out);
    }
    std::string out;
    size_t at = 0;
    for (size_t found; (found = held_.find(suffix_, at)) != std::string::npos; at = found + suffix_.size()) {
      out.append(held_, at, found - at).append(content);
    }
    out.append(held_, at);
    emit(out);
  }
  std::string suffix_, held_;
  bool holding_ = false;
};

std::unique_ptr<DecodeStage> make_stage(const decoder::Step& spec, const Regex& regex, DecodeStage& next) {
  if (std::holds_alternative<decoder::ByteLevel>(spec)) return std::make_unique<ByteLevelStage>(next);
  if (std::holds_alternative<decoder::ByteFallback>(spec)) return std::make_unique<ByteFallbackStage>(next);
  if (std::holds_alternative<decoder::Fuse>(spec)) return std::make_unique<FuseStage>(next);
  if (const auto* m = std::get_if<decoder::Metaspace>(&spec)) return std::make_unique<MetaspaceStage>(*m, next);
  if (const auto* replace = std::get_if<decoder::Replace>(&spec)) {
    if (needs_regex(replace->pattern)) return std::make_unique<ReplaceRegexStage>(*replace, regex, next);
    return std::make_unique<ReplaceLiteralStage>(*replace, next);
  }
  if (const auto* strip = std::get_if<decoder::Strip>(&spec)) return std::make_unique<StripStage>(*strip, next);
  if (const auto* word_piece = std::get_if<decoder::WordPiece>(&spec))
    return std::make_unique<WordPieceStage>(*word_piece, next);
  return std::make_unique<BpeStage>(std::get<decoder::Bpe>(spec), next);
}

}  // namespace

Result<DecoderPlan> DecoderPlan::create(const std::vector<decoder::Step>& steps) {
  DecoderPlan plan;
  for (const decoder::Step& spec : steps) {
    Step step{spec, {}};
    if (const auto* replace = std::get_if<decoder::Replace>(&spec);
        replace != nullptr && needs_regex(replace->pattern)) {
      BOLIDE_TRY(step.regex, Regex::compile(replace->pattern.text).context("decoder"));
    }
    plan.steps_.push_back(std::move(step));
  }
  return plan;
}

DecodeStream::DecodeStream(const DecoderPlan& plan) : out_(std::make_unique<std::string>()) {
  stages_.push_back(std::make_unique<Sink>(*out_));
  if (plan.steps_.empty()) stages_.push_back(std::make_unique<JoinStage>(*stages_.back()));
  for (size_t i = plan.steps_.size(); i-- > 0;) {
    stages_.push_back(make_stage(plan.steps_[i].spec, plan.steps_[i].regex, *stages_.back()));
  }
}

}  // namespace bolide
