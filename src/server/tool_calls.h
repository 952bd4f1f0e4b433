// Calls of tools in what a model writes: the formats of Hermes and Qwen, of Llama 3 and of Mistral, read as the text
// comes, so that a stream shows the beginning of a call before its end is there.
//
//   hermes   <tool_call>{"name": ..., "arguments": {...}}</tool_call>, as often as there are calls
//   llama3   {"name": ..., "parameters": {...}}, alone or after <|python_tag|>; more follow after ";"
//   mistral  [TOOL_CALLS][{"name": ..., "arguments": {...}}, ...], or [TOOL_CALLS]name[ARGS]{...}
// Marks that are special tokens do not become text: an answer of llama3 or mistral that begins with the object, or the
// list of objects, is read as calls too. What looks like a call and has no name is text.
//
// Thread rules: one thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace bolide::server {

enum class ToolFormat : uint8_t { kNone, kHermes, kLlama3, kMistral };
// By the marks that the model's template writes.
ToolFormat tool_format_of(std::string_view chat_template);

struct ToolEvent {
  enum class Kind : uint8_t { kText, kBegin, kArguments } kind = Kind::kText;
  size_t call = 0;   // from 0
  std::string text;  // UTF-8 text; a call's name; more of its arguments, which are JSON
  bool operator==(const ToolEvent&) const = default;
};

class ToolCallParser {
 public:
  explicit ToolCallParser(ToolFormat format) : format_(format) {}

  // Appends what is certain now. kNone: all of it is text.
  void push(std::string_view text, std::vector<ToolEvent>* events);
  // The answer is over: what was held back is text, or an incomplete call, whose arguments end where they are.
  void finish(std::vector<ToolEvent>* events);
  size_t calls() const { return calls_; }

 private:
  enum class Place : uint8_t {
    kText,       // outside of calls
    kBefore,     // behind a mark
    kName,       // mistral: a bare name, up to [ARGS]
    kObject,     // before the call's {
    kKey,        // before a key, or }
    kInKey,      // its characters
    kColon,      // behind it
    kValue,      // before a value
    kInValue,    // a value's characters
    kComma,      // behind a value
    kBetween,    // behind a call
    kAfterMark,  // hermes: before </tool_call>
  };

  bool step(std::vector<ToolEvent>* events);
  bool text_step(std::vector<ToolEvent>* events);
  void text(std::string_view text, std::vector<ToolEvent>* events);
  void arguments(std::string_view text, std::vector<ToolEvent>* events);
  void begin_object();
  void value_over(std::vector<ToolEvent>* events);
  void call_over(std::vector<ToolEvent>* events);
  void give_up(std::vector<ToolEvent>* events);
  void announce(std::vector<ToolEvent>* events);
  char take();

  const ToolFormat format_;
  Place place_ = Place::kText;
  bool at_start_ = true;     // only white space was there so far
  bool in_list_ = false;     // mistral: objects in [ ]
  bool after_call_ = false;  // nothing but white space since a call
  bool marked_ = false;      // a mark was there, so an object with a name alone is a call
  std::string in_;           // what was not looked at
  std::string raw_;          // all of what may be a call, while it can still turn out to be text
  std::string key_, value_;  // of the object; the value's text, unless it is streamed
  std::string name_, held_;  // held_: arguments that came before the name
  bool named_ = false, announced_ = false, has_arguments_ = false;
  bool bare_ = false;     // mistral: the value is the whole call, after its name
  bool streams_ = false;  // the value goes to `arguments` as it comes
  bool in_string_ = false, escaped_ = false;
  int depth_ = 0;
  size_t calls_ = 0;
};

}  // namespace bolide::server
