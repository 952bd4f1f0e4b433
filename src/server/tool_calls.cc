#include "server/tool_calls.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

namespace bolide::server {
namespace {

constexpr std::string_view kHermesBegin = "<tool_call>", kHermesEnd = "</tool_call>";
constexpr std::string_view kLlamaBegin = "<|python_tag|>";
constexpr std::string_view kMistralBegin = "[TOOL_CALLS]", kMistralArguments = "[ARGS]";

std::string_view mark_of(ToolFormat format) {
  switch (format) {
    case ToolFormat::kHermes: return kHermesBegin;
    case ToolFormat::kLlama3: return kLlamaBegin;
    case ToolFormat::kMistral: return kMistralBegin;
    default: return "";
  }
}

constexpr const char* kSpaces = " \n\t\r";
bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

// How many bytes at the end of `text` begin `mark`.
size_t held_back(std::string_view text, std::string_view mark) {
  for (size_t n = std::min(text.size(), mark.size() - 1); n > 0; --n)
    if (text.substr(text.size() - n) == mark.substr(0, n)) return n;
  return 0;
}

// A JSON string's own text; nothing if `quoted` is none.
bool unquote(const std::string& quoted, std::string* to) {
  const auto json = nlohmann::json::parse(quoted, nullptr, false);
  if (!json.is_string()) return false;
  *to = json.get<std::string>();
  return true;
}

}  // namespace

ToolFormat tool_format_of(std::string_view chat_template) {
  const auto has = [&](std::string_view what) { return chat_template.find(what) != std::string_view::npos; };
  if (has(kHermesBegin)) return ToolFormat::kHermes;
  if (has(kMistralBegin)) return ToolFormat::kMistral;
  if (has(kLlamaBegin) || (has("<|start_header_id|>") && has("\"parameters\""))) return ToolFormat::kLlama3;
  return ToolFormat::kNone;
}

void ToolCallParser::text(std::string_view text, std::vector<ToolEvent>* events) {
  if (text.empty()) return;
  if (!events->empty() && events->back().kind == ToolEvent::Kind::kText)
    events->back().text += text;
  else
    events->push_back({ToolEvent::Kind::kText, 0, std::string(text)});
}

void ToolCallParser::arguments(std::string_view text, std::vector<ToolEvent>* events) {
  if (!announced_) {
    held_ += text;
    return;
  }
  if (!events->empty() && events->back().kind == ToolEvent::Kind::kArguments && events->back().call == calls_ - 1)
    events->back().text += text;
  else
    events->push_back({ToolEvent::Kind::kArguments, calls_ - 1, std::string(text)});
}

// The name is known, so this is a call.
void ToolCallParser::announce(std::vector<ToolEvent>* events) {
  if (announced_ || !named_) return;
  announced_ = true;
  events->push_back({ToolEvent::Kind::kBegin, calls_++, name_});
  raw_.clear();
  if (!held_.empty()) arguments(std::exchange(held_, {}), events);
}

char ToolCallParser::take() {
  const char c = in_.front();
  in_.erase(0, 1);
  if (!announced_) raw_ += c;
  return c;
}

void ToolCallParser::begin_object() {
  place_ = Place::kObject;
  named_ = announced_ = has_arguments_ = false;
  name_.clear(), held_.clear();
}

// It is no call: what was held back is text. Of a call that was begun nothing more comes.
void ToolCallParser::give_up(std::vector<ToolEvent>* events) {
  text(raw_, events);
  raw_.clear();
  in_list_ = at_start_ = false;
  place_ = Place::kText;
}

void ToolCallParser::value_over(std::vector<ToolEvent>* events) {
  place_ = Place::kComma;
  if (streams_) return;
  if (key_ == "name") {
    if (!unquote(value_, &name_) || name_.empty()) return give_up(events);
    named_ = true;
    if (has_arguments_) announce(events);
  } else if (key_ == "arguments" || key_ == "parameters") {  // as a string, or null
    std::string inner;
    if (!unquote(value_, &inner)) inner = "{}";
    has_arguments_ = true;
    arguments(inner, events);
    announce(events);
  }
}

void ToolCallParser::call_over(std::vector<ToolEvent>* events) {
  if (!named_ || (!has_arguments_ && !marked_)) return give_up(events);
  announce(events);
  if (!has_arguments_) arguments("{}", events);
  raw_.clear();
  after_call_ = true;
  place_ = format_ == ToolFormat::kHermes ? Place::kAfterMark : Place::kBetween;
}

// Text, up to a mark. False: more must come first.
bool ToolCallParser::text_step(std::vector<ToolEvent>* events) {
  const std::string_view mark = mark_of(format_);
  if (at_start_ && format_ != ToolFormat::kHermes) {
    const size_t first = in_.find_first_not_of(kSpaces);
    if (first == std::string::npos) return false;
    const bool list = format_ == ToolFormat::kMistral;
    const size_t second = list ? in_.find_first_not_of(kSpaces, first + 1) : first;
    if (list && in_[first] == '[' && second == std::string::npos) return false;
    if (in_[first] == (list ? '[' : '{') && in_[second] == '{') {
      raw_ = in_.substr(0, second);
      in_.erase(0, second);
      in_list_ = list, marked_ = false;
      begin_object();
      return true;
    }
  }
  if (after_call_) {  // white space between calls is nobody's text
    const size_t first = in_.find_first_not_of(kSpaces);
    if (first == std::string::npos) return false;
    in_.erase(0, first);
    const std::string_view rest = in_;
    if (rest.size() < mark.size() && mark.starts_with(rest)) return false;
    after_call_ = false;
  }
  const size_t at = in_.find(mark);
  if (at != std::string::npos) {
    text(std::string_view(in_).substr(0, at), events);
    raw_ = mark;
    in_.erase(0, at + mark.size());
    place_ = Place::kBefore, at_start_ = false, marked_ = true;
    return true;
  }
  const size_t sure = in_.size() - held_back(in_, mark);
  if (in_.find_first_not_of(kSpaces) < sure) at_start_ = false;
  if (at_start_) return false;
  text(std::string_view(in_).substr(0, sure), events);
  in_.erase(0, sure);
  return false;
}

// One step on; false: more must come first.
bool ToolCallParser::step(std::vector<ToolEvent>* events) {
  if (in_.empty()) return false;
  if (place_ == Place::kText) return text_step(events);
  if (place_ == Place::kName) {
    const size_t at = in_.find(kMistralArguments);
    const size_t stop = in_.find_first_of("{\n");
    if (at == std::string::npos || stop < at) {
      if (stop == std::string::npos) return false;
      give_up(events);
      return true;
    }
    name_ = in_.substr(0, at);
    while (!name_.empty() && is_space(name_.back())) name_.pop_back();
    raw_ += in_.substr(0, at + kMistralArguments.size());
    in_.erase(0, at + kMistralArguments.size());
    named_ = !name_.empty();
    key_ = "arguments", place_ = Place::kValue;
    depth_ = -1;  // the value is all there is
    return true;
  }
  if (place_ == Place::kAfterMark || place_ == Place::kBetween) {
    const size_t first = in_.find_first_not_of(kSpaces);
    if (first == std::string::npos) return false;
    const std::string_view rest = std::string_view(in_).substr(first);
    if (place_ == Place::kAfterMark) {
      if (rest.size() < kHermesEnd.size() && kHermesEnd.starts_with(rest)) return false;
      in_.erase(0, rest.starts_with(kHermesEnd) ? first + kHermesEnd.size() : 0);
      place_ = Place::kText;
      return true;
    }
    const char between = format_ == ToolFormat::kLlama3 ? ';' : ',';
    if (rest.front() == between && (in_list_ || format_ == ToolFormat::kLlama3)) {
      in_.erase(0, first + 1);
      begin_object();
      raw_.clear();
    } else if (rest.front() == '{' && format_ == ToolFormat::kLlama3) {
      in_.erase(0, first);
      begin_object();
    } else {
      in_.erase(0, rest.front() == ']' && in_list_ ? first + 1 : 0);
      in_list_ = false;
      place_ = Place::kText;
    }
    return true;
  }
  if (place_ == Place::kInKey || place_ == Place::kInValue) {
    // As much as belongs to it, at once.
    size_t n = 0;
    bool over = false, broken = false;
    while (n < in_.size() && !over && !broken) {
      const char c = in_[n];
      if (in_string_) {
        ++n;
        if (escaped_)
          escaped_ = false;
        else if (c == '\\')
          escaped_ = true;
        else if (c == '"')
          in_string_ = false, over = depth_ == 0;
        continue;
      }
      if (depth_ == 0) {  // a number or a word: what ends it is not part of it
        if (c == ',' || c == '}' || is_space(c)) break;
        broken = c == '{' || c == '[' || c == '"' || c == ']' || c == ':';
        n += broken ? 0 : 1;
        continue;
      }
      ++n;
      if (c == '"')
        in_string_ = true;
      else if (c == '{' || c == '[')
        ++depth_;
      else if (c == '}' || c == ']')
        over = --depth_ == 0;
    }
    const std::string part = in_.substr(0, n);
    const bool word_over = !over && !broken && n < in_.size();
    in_.erase(0, n);
    if (!announced_) raw_ += part;
    if (place_ == Place::kInKey) {
      value_ += part;
      if (!over) return false;
      place_ = Place::kColon;
      if (!unquote(value_, &key_)) give_up(events);
      return true;
    }
    if (streams_)
      arguments(part, events);
    else
      value_ += part;
    if (broken) {
      give_up(events);
      return true;
    }
    if (!over && !word_over) return false;
    value_over(events);
    if (bare_) {
      bare_ = false;
      call_over(events);
    }
    return true;
  }
  const char c = in_.front();
  if (is_space(c)) {
    take();
    return true;
  }
  switch (place_) {
    case Place::kBefore:
      begin_object();
      in_list_ = false;
      if (format_ == ToolFormat::kMistral && c == '[') {
        take();
        in_list_ = true;
      } else if (format_ == ToolFormat::kMistral && c != '{') {
        place_ = Place::kName;
      }
      return true;
    case Place::kObject:
      if (c != '{') return give_up(events), true;
      take();
      place_ = Place::kKey;
      return true;
    case Place::kKey:
      if (c == '}') return take(), call_over(events), true;
      if (c != '"') return give_up(events), true;
      take();
      value_ = "\"", in_string_ = true, escaped_ = false, depth_ = 0;
      place_ = Place::kInKey;
      return true;
    case Place::kColon:
      if (c != ':') return give_up(events), true;
      take();
      place_ = Place::kValue;
      return true;
    case Place::kValue: {
      const bool object = c == '{' || c == '[';
      streams_ = c == '{' && (key_ == "arguments" || key_ == "parameters");
      bare_ = std::exchange(depth_, 0) < 0;
      if (bare_ && !streams_) return give_up(events), true;
      value_.clear();
      if (streams_) {
        has_arguments_ = true;
        announce(events);
      }
      take();
      if (streams_)
        arguments(std::string_view(&c, 1), events);
      else
        value_ = c;
      in_string_ = c == '"', escaped_ = false, depth_ = object ? 1 : 0;
      place_ = Place::kInValue;
      return true;
    }
    case Place::kComma:
      if (c == '}') return take(), call_over(events), true;
      if (c != ',') return give_up(events), true;
      take();
      place_ = Place::kKey;
      return true;
    default: return give_up(events), true;
  }
}

void ToolCallParser::push(std::string_view more, std::vector<ToolEvent>* events) {
  if (format_ == ToolFormat::kNone) return text(more, events);
  in_ += more;
  while (step(events)) {
  }
}

void ToolCallParser::finish(std::vector<ToolEvent>* events) {
  if (place_ == Place::kText || place_ == Place::kBetween || place_ == Place::kAfterMark) {
    const bool mark_begun =
        place_ == Place::kAfterMark &&
        kHermesEnd.starts_with(std::string_view(in_).substr(std::min(in_.size(), in_.find_first_not_of(kSpaces))));
    const bool blank = in_.find_first_not_of(kSpaces) == std::string::npos;
    if (!mark_begun && !(blank && calls_ > 0)) text(in_, events);
  } else if (!announced_) {
    text(raw_ + in_, events);
  }
  in_.clear(), raw_.clear();
  place_ = Place::kText;
}

}  // namespace bolide::server
