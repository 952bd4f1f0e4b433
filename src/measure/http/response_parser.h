// One HTTP/1.1 response after another, out of the bytes of a connection as they come. Memory is bounded whatever a
// server sends: a header block of 64 KiB, a line of a chunk's size of 256 bytes.
//
// Thread rules: one thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/function_ref.h"

namespace bolide::http {

enum class ResponseFault : uint8_t {
  kNone,
  kBadStatusLine,
  kBadHeader,
  kHeadersTooLong,
  kBadLength,   // Content-Length that is no number, or two that differ
  kBadChunk,    // a chunk's size that is no hex number, or no line end behind a chunk
  kSurplus,     // bytes behind the end of a response
  kClosedEarly  // the connection ended in the middle
};
std::string_view to_string(ResponseFault fault);

class ResponseParser {
 public:
  // What one call takes: pieces of the body, as they lie in `bytes`; it returns false to stop.
  using OnBody = FunctionRef<bool(std::string_view piece)>;

  void start();  // the next response; after it is done or before the first
  // False once there is a fault, or on_body stopped.
  bool push(std::string_view bytes, OnBody on_body);
  // The connection was closed. False (kClosedEarly) if the response is not whole.
  bool close();

  bool begun() const { return begun_; }  // a byte of the response was seen
  bool headers_done() const { return state_ >= State::kBodyOfLength; }
  bool done() const { return state_ == State::kDone; }
  bool keep_alive() const { return keep_alive_ && state_ == State::kDone; }
  ResponseFault fault() const { return fault_; }
  int status() const { return status_; }
  // Lower case, without parameters: "text/event-stream".
  const std::string& content_type() const { return content_type_; }

 private:
  enum class State : uint8_t {
    kStatusLine,
    kHeaders,
    kBodyOfLength,
    kBodyUntilClose,
    kChunkSize,
    kChunk,
    kChunkEnd,
    kTrailers,
    kDone
  };
  bool fail(ResponseFault fault);
  bool on_line(std::string_view line);
  bool on_header(std::string_view line);
  bool on_headers_end();
  bool on_chunk_size(std::string_view line);
  bool takes_lines() const;

  State state_ = State::kStatusLine;
  ResponseFault fault_ = ResponseFault::kNone;
  bool begun_ = false, keep_alive_ = true, chunked_ = false;
  int status_ = 0, interim_ = 0;
  int64_t length_ = -1;  // Content-Length; -1: none
  uint64_t left_ = 0;    // of the body or the chunk
  size_t header_bytes_ = 0;
  std::string line_;  // the part of a line that has come
  std::string content_type_;
};

}  // namespace bolide::http
