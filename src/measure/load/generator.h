// The load generator: one thread that sends requests when they are due, reads their streams, and writes down what
// happened when. What it means is summary.h's affair.
//
// Thread rules: run_load belongs to one thread; `stop` may be set from any thread or a signal handler.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "measure/http/url.h"
#include "measure/load/dialect.h"

namespace bolide::load {

struct Target {
  http::Url url;
  http::Address address;
  Dialect dialect = Dialect::kOpenaiChat;
  std::string route;
  std::string headers;  // whole lines, may be empty
};

struct LoadPlan {
  // Open loop: when requests are due, in seconds. Empty: a closed loop.
  std::vector<double> arrivals_s;
  int32_t concurrency = 1;      // of the closed loop: each of so many users sends when the answer before is whole
  double duration_s = 30;       // nothing is sent after it
  int64_t requests_max = 0;     // of the closed loop; 0: no limit
  double timeout_s = 120;       // of one request, from when it was due
  int32_t connections_max = 0;  // 0: what the process may open
};

// Times are seconds since the start of the run. Latencies count from `due_s`, when the request was meant to be sent: a
// generator or server that falls behind cannot hide what waiting for it costs (coordinated omission).
struct RequestRecord {
  double due_s = 0;
  double sent_s = 0;   // when it was handed to the kernel, or the connection it needs was asked for
  double first_s = 0;  // first event with text in it
  double last_s = 0;   // last one
  double end_s = 0;    // of the stream; 0: not over
  double gap_max_s = 0;
  int64_t prompt_tokens = -1, output_tokens = -1;  // as the server counts; -1: it does not say
  int32_t events = 0;                              // with text
  bool ok = false;
  bool interrupted = false;  // the run was ended before it could end
};

struct Gap {
  float end_s = 0;    // when the later event came
  float seconds = 0;  // since the one before of the same stream
};

struct Fault {
  int64_t count = 0;
  std::string example;  // printable, 200 bytes at most
};

// Width of the windows that events are counted in.
constexpr double kWindowSeconds = 0.05;

struct RunLog {
  std::vector<RequestRecord> requests;  // in the order in which they were due
  std::vector<Gap> gaps;                // in the order of time; of long runs every 2nd, 4th, ...
  std::vector<uint32_t> events_per_window;
  std::map<std::string, Fault> faults;  // by kind: "http 429", "timeout", ...
  double issue_end_s = 0;               // when the last request was sent, or the plan's end
  double end_s = 0;
  double processor_s = 0;  // of this process
  int64_t events = 0;
  int64_t connections = 0;  // that were opened
  bool interrupted = false;
};

struct LoadProgress {
  double elapsed_s = 0;
  int64_t sent = 0, ok = 0, failed = 0, in_flight = 0, events = 0;
};

// The body of the i-th request, made when it is sent.
using BodySource = FunctionRef<std::string(int64_t index)>;

// Ends when all is answered, timed out, or `stop` is set. kUnavailable: the system gives no epoll or timer.
Result<RunLog> run_load(const Target& target, const LoadPlan& plan, BodySource body, const std::atomic<bool>& stop,
                        FunctionRef<void(const LoadProgress&)> progress);

}  // namespace bolide::load
