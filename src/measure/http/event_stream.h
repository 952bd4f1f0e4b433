// Server-sent events (text/event-stream) out of the pieces of a body.
//
// Thread rules: one thread.
#pragma once

#include <string>
#include <string_view>

#include "base/function_ref.h"

namespace bolide::http {

// An event that is longer is a fault: no server of tokens sends one.
constexpr size_t kEventBytesMax = 1 << 20;

class EventStream {
 public:
  // The event's data, several lines of it joined by newlines. False stops.
  using OnEvent = FunctionRef<bool(std::string_view data)>;

  void start();
  // False: on_event stopped, or an event is too long.
  bool push(std::string_view bytes, OnEvent on_event);
  bool too_long() const { return too_long_; }
  // The body has ended; servers that forget the last empty line have sent an event all the same.
  bool finish(OnEvent on_event);

 private:
  bool on_line(std::string_view line, OnEvent on_event);

  std::string line_, data_;
  bool has_data_ = false, after_cr_ = false, too_long_ = false;
};

}  // namespace bolide::http
