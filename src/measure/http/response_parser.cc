#include "measure/http/response_parser.h"

#include <algorithm>
#include <charconv>

namespace bolide::http {
namespace {

constexpr size_t kHeaderBytesMax = 64 << 10;
constexpr size_t kChunkLineBytesMax = 256;
constexpr int kInterimMax = 8;  // responses 1xx before the real one

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

std::string_view trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

template <class T>
bool parse_number(std::string_view text, int base, T* out) {
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), *out, base);
  return !text.empty() && parsed.ec == std::errc() && parsed.ptr == text.data() + text.size();
}

}  // namespace

std::string_view to_string(ResponseFault fault) {
  switch (fault) {
    case ResponseFault::kNone: return "none";
    case ResponseFault::kBadStatusLine: return "the status line is not HTTP/1";
    case ResponseFault::kBadHeader: return "a header line is malformed";
    case ResponseFault::kHeadersTooLong: return "the headers are longer than 64 KiB";
    case ResponseFault::kBadLength: return "Content-Length is malformed";
    case ResponseFault::kBadChunk: return "a chunk is malformed";
    case ResponseFault::kSurplus: return "there are bytes behind the response";
    case ResponseFault::kClosedEarly: return "the connection ended in the middle of the response";
  }
  return "?";
}

void ResponseParser::start() {
  state_ = State::kStatusLine;
  fault_ = ResponseFault::kNone;
  begun_ = chunked_ = false;
  keep_alive_ = true;
  status_ = interim_ = 0;
  length_ = -1;
  left_ = 0;
  header_bytes_ = 0;
  line_.clear();
  content_type_.clear();
}

bool ResponseParser::fail(ResponseFault fault) {
  if (fault_ == ResponseFault::kNone) fault_ = fault;
  keep_alive_ = false;
  return false;
}

bool ResponseParser::takes_lines() const {
  return state_ == State::kStatusLine || state_ == State::kHeaders || state_ == State::kChunkSize ||
         state_ == State::kChunkEnd || state_ == State::kTrailers;
}

bool ResponseParser::push(std::string_view bytes, OnBody on_body) {
  if (fault_ != ResponseFault::kNone) return false;
  begun_ = begun_ || !bytes.empty();
  while (!bytes.empty()) {
    if (state_ == State::kDone) return fail(ResponseFault::kSurplus);
    if (!takes_lines()) {
      const bool all = state_ == State::kBodyUntilClose || left_ > bytes.size();
      const std::string_view piece = all ? bytes : bytes.substr(0, left_);
      bytes.remove_prefix(piece.size());
      if (state_ != State::kBodyUntilClose) {
        left_ -= piece.size();
        if (left_ == 0) state_ = state_ == State::kChunk ? State::kChunkEnd : State::kDone;
      }
      if (!on_body(piece)) return false;
      continue;
    }
    const size_t end = bytes.find('\n');
    const std::string_view part = bytes.substr(0, end);
    const bool in_chunks = state_ == State::kChunkSize || state_ == State::kChunkEnd;
    if (in_chunks) {
      if (line_.size() + part.size() > kChunkLineBytesMax) return fail(ResponseFault::kBadChunk);
    } else {
      header_bytes_ += part.size() + 1;
      if (header_bytes_ > kHeaderBytesMax) return fail(ResponseFault::kHeadersTooLong);
    }
    if (end == std::string_view::npos) {
      line_ += part;
      return true;
    }
    bytes.remove_prefix(end + 1);
    std::string_view line = part;
    if (!line_.empty()) {
      line_ += part;
      line = line_;
    }
    if (line.ends_with('\r')) line.remove_suffix(1);
    const bool good = on_line(line);
    line_.clear();
    if (!good) return false;
  }
  return true;
}

bool ResponseParser::close() {
  if (state_ == State::kBodyUntilClose) state_ = State::kDone;
  keep_alive_ = false;
  return done() || fail(ResponseFault::kClosedEarly);
}

bool ResponseParser::on_line(std::string_view line) {
  switch (state_) {
    case State::kStatusLine: {
      // "HTTP/1.1 200 OK"
      if (line.size() < 12 || !line.starts_with("HTTP/1.") || line[8] != ' ' ||
          !parse_number(line.substr(9, 3), 10, &status_) || status_ < 100 || (line.size() > 12 && line[12] != ' '))
        return fail(ResponseFault::kBadStatusLine);
      keep_alive_ = line[7] != '0';
      state_ = State::kHeaders;
      return true;
    }
    case State::kHeaders: return line.empty() ? on_headers_end() : on_header(line);
    case State::kChunkSize: return on_chunk_size(line);
    case State::kChunkEnd: state_ = State::kChunkSize; return line.empty() || fail(ResponseFault::kBadChunk);
    case State::kTrailers:
      if (line.empty()) state_ = State::kDone;
      return true;
    default: return fail(ResponseFault::kBadHeader);
  }
}

bool ResponseParser::on_header(std::string_view line) {
  const size_t colon = line.find(':');
  if (colon == 0 || colon == std::string_view::npos || line.front() == ' ' || line.front() == '\t')
    return fail(ResponseFault::kBadHeader);
  const std::string name = lower(line.substr(0, colon));
  const std::string_view value = trim(line.substr(colon + 1));
  if (name == "content-length") {
    int64_t length = 0;
    if (!parse_number(value, 10, &length) || length < 0 || (length_ >= 0 && length_ != length))
      return fail(ResponseFault::kBadLength);
    length_ = length;
  } else if (name == "transfer-encoding") {
    if (lower(value) != "chunked") return fail(ResponseFault::kBadHeader);
    chunked_ = true;
  } else if (name == "connection") {
    const std::string words = lower(value);
    if (words.find("close") != std::string::npos) keep_alive_ = false;
    if (words.find("keep-alive") != std::string::npos) keep_alive_ = true;
  } else if (name == "content-type") {
    content_type_ = lower(trim(value.substr(0, value.find(';'))));
  }
  return true;
}

bool ResponseParser::on_headers_end() {
  if (status_ < 200) {
    if (++interim_ > kInterimMax) return fail(ResponseFault::kHeadersTooLong);
    state_ = State::kStatusLine;
    length_ = -1;
    chunked_ = false;
    return true;
  }
  if (status_ == 204 || status_ == 304) {
    state_ = State::kDone;
  } else if (chunked_) {
    state_ = State::kChunkSize;
    header_bytes_ = 0;
  } else if (length_ >= 0) {
    left_ = static_cast<uint64_t>(length_);
    state_ = left_ == 0 ? State::kDone : State::kBodyOfLength;
  } else {
    state_ = State::kBodyUntilClose;
  }
  return true;
}

bool ResponseParser::on_chunk_size(std::string_view line) {
  // Extensions behind ';' mean nothing here.
  const std::string_view digits = trim(line.substr(0, line.find(';')));
  // 15 digits: no size that is taken further can overflow.
  if (digits.size() > 15 || !parse_number(digits, 16, &left_)) return fail(ResponseFault::kBadChunk);
  state_ = left_ == 0 ? State::kTrailers : State::kChunk;
  return true;
}

}  // namespace bolide::http
