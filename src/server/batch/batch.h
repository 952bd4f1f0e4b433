// Batch: asks an Api the requests of a file, as many at once as keep its engines busy, and writes the answers to a
// ledger as they come. There is no HTTP: the Api gets its exchanges from here.
//
// Threads: that of `run` reads and decides, one makes prompts of requests, one makes text of what the engines say and
// writes. Engines that still answer when `run` has returned must have been stopped before the Batch ends.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/function_ref.h"
#include "server/api.h"
#include "server/batch/batch_line.h"
#include "server/batch/ledger.h"
#include "server/batch/line_file.h"
#include "server/work_queue.h"

namespace bolide::server {

inline constexpr size_t kRequestLineBytesMax = 64u << 20;

struct BatchOptions {
  size_t under_way_max = 64;      // requests
  size_t bytes_max = 256u << 20;  // of those; a larger one goes alone
  std::chrono::seconds sync_every{5};
};

struct BatchCounts {
  int64_t answered = 0, failed = 0;  // by this run
  int64_t prompt_tokens = 0, completion_tokens = 0;
  size_t under_way = 0;
};

// What `run` is told when it asks, several times a second.
enum class BatchOrder : uint8_t { kGo, kEnd, kEndNow };  // kEnd: take no more, wait for what is under way

// Reads all requests and marks them in `ids`. `check(line)` may refuse one; `looking(bytes)` is told how far it is.
// Errors, with file and line: those of parse_batch_line; two of one custom_id.
Result<> check_batch_file(const std::filesystem::path& path, IdTable* ids,
                          FunctionRef<Result<>(const BatchLine&)> check, FunctionRef<void(uint64_t)> looking);

class Batch {
 public:
  Batch(Api& api, const ModelRegistry& models, Ledger& ledger, const BatchOptions& options);
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;
  ~Batch();

  // Asks those that have no answer in `ids`. True: all are answered. What is refused because of the moment, not because
  // of the request, gets no answer and ends the run. Errors: that; reading and writing.
  Result<bool> run(const std::filesystem::path& path, IdTable* ids, FunctionRef<BatchOrder(const BatchCounts&)> order);
  BatchCounts counts() const;

 private:
  class Exchange;
  using Order = FunctionRef<BatchOrder(const BatchCounts&)>;

  Result<bool> ask(const std::filesystem::path& path, IdTable* ids, Order order);
  void start(BatchLine line);
  void finished(const std::string& custom_id, size_t bytes, const HttpResponse& response);
  bool is_of_the_moment(int status) const;
  // What is to be done; asked anew, and what was written made durable, when that was some time ago.
  Result<BatchOrder> look_up(Order order);
  // Until it is ready, which is asked with the mutex held. False: the order is to `stop` before.
  template <class Ready>
  Result<bool> wait_until(Order order, BatchOrder stop, const Ready& ready);

  Api& api_;
  const ModelRegistry& models_;
  Ledger& ledger_;
  const BatchOptions options_;
  BatchOrder order_ = BatchOrder::kGo;
  std::chrono::steady_clock::time_point looked_, synced_;

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  BatchCounts counts_;
  size_t bytes_ = 0;  // of requests under way
  std::optional<Error> failure_;

  std::shared_ptr<WorkQueue> texts_;  // exchanges know it weakly: engines may speak to one longer than it lives
  WorkQueue prompts_;
};

}  // namespace bolide::server
