// One connection of the load generator, and the request that is on it.
//
// Thread rules: the generator's thread.
#pragma once

#include <string>

#include "measure/http/event_stream.h"
#include "measure/http/response_parser.h"
#include "measure/http/url.h"

namespace bolide::load {

enum class Stage : uint8_t { kFree, kConnecting, kSending, kReceiving, kIdle };

struct Connection {
  int descriptor = -1;
  uint32_t slot = 0;        // among the generator's connections
  uint32_t generation = 0;  // events of an earlier user of the slot are told by it
  uint64_t tag = 0;         // both, as epoll has it
  Stage stage = Stage::kFree;
  bool wants_write = false;   // what epoll was told
  bool reused = false;        // the request is not the connection's first
  bool stream_ended = false;  // [DONE] was seen
  bool finished = false;      // a reason for the end was named
  int64_t request = -1;
  double ended_s = 0;  // when stream_ended became true
  std::string out;
  size_t out_at = 0;
  std::string refusal;  // start of a body that is no stream
  http::ResponseParser parser;
  http::EventStream stream;
};

// -1 and errno if there is no socket; else it is connecting or connected.
int open_socket(const http::Address& address);

}  // namespace bolide::load
