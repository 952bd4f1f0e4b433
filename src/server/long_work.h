// LongWork: threads for requests whose bodies take long to read, such as megabytes to be tokenised: they would hold up
// the server's own.
//
// Thread rules: any thread may add; what waits when it ends is dropped.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "base/log.h"
#include "server/http.h"
#include "server/work_queue.h"

namespace bolide::server {

class LongWork {
 public:
  explicit LongWork(int threads) : queue_(threads, 256) {}

  // Refused if too many wait. What the work throws (for want of memory, say) ends its request, not the process.
  // `refuse` answers the exchange, and counts it.
  void add(const std::shared_ptr<HttpExchange>& exchange, std::function<void()> work,
           const std::function<void(const Error&)>& refuse) {
    const auto guarded = [exchange, work = std::move(work), refuse] {
      try {
        work();
      } catch (const std::exception& thrown) {
        log::error("a handler failed", {{"path", std::string_view(exchange->request().path)}, {"what", thrown.what()}});
        refuse(error(Code::kInternal, "the server failed at this request"));
      }
    };
    if (!queue_.add(guarded)) refuse(error(Code::kOverloaded, "too many long requests wait"));
  }
  void stop() { queue_.stop(); }

 private:
  WorkQueue queue_;
};

}  // namespace bolide::server
