#include "measure/http/event_stream.h"

#include <algorithm>

namespace bolide::http {

void EventStream::start() {
  line_.clear();
  data_.clear();
  has_data_ = after_cr_ = too_long_ = false;
}

bool EventStream::push(std::string_view bytes, OnEvent on_event) {
  while (!bytes.empty()) {
    if (after_cr_ && bytes.front() == '\n') bytes.remove_prefix(1);
    after_cr_ = false;
    const size_t newline = bytes.find('\n');
    const size_t end = std::min(bytes.substr(0, newline).find('\r'), newline);
    const std::string_view part = bytes.substr(0, end);
    if (line_.size() + part.size() + data_.size() > kEventBytesMax) {
      too_long_ = true;
      return false;
    }
    if (end == std::string_view::npos) {
      line_ += part;
      return true;
    }
    after_cr_ = bytes[end] == '\r';
    bytes.remove_prefix(end + 1);
    bool good = false;
    if (line_.empty()) {
      good = on_line(part, on_event);
    } else {
      line_ += part;
      good = on_line(line_, on_event);
      line_.clear();
    }
    if (!good) return false;
  }
  return true;
}

bool EventStream::finish(OnEvent on_event) {
  if (!line_.empty() && !on_line(line_, on_event)) return false;
  line_.clear();
  return on_line({}, on_event);
}

bool EventStream::on_line(std::string_view line, OnEvent on_event) {
  if (line.empty()) {
    if (!has_data_) return true;
    has_data_ = false;
    const bool good = on_event(data_);
    data_.clear();
    return good;
  }
  constexpr std::string_view kData = "data";
  if (!line.starts_with(kData)) return true;  // comments, event:, id:, retry:
  line.remove_prefix(kData.size());
  if (!line.empty() && line.front() != ':') return true;  // another field's name
  if (!line.empty()) line.remove_prefix(1);
  if (line.starts_with(' ')) line.remove_prefix(1);
  if (has_data_) data_ += '\n';
  data_ += line;
  has_data_ = true;
  return true;
}

}  // namespace bolide::http
