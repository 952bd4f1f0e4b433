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
  // Answers the exchange, and counts it.
  using Refuse = std::function<void(const std::shared_ptr<HttpExchange>&, const Error&)>;
  LongWork(int threads, Refuse refuse) : refuse_(std::move(refuse)), queue_(threads, 256) {}

  // The request is refused if too many wait. What the work throws (for want of memory, say) ends its request, not the
  // process.
  void add(const std::shared_ptr<HttpExchange>& exchange, std::function<void()> work) {
    const auto guarded = [this, exchange, work = std::move(work)] {
      try {
        work();
      } catch (const std::exception& thrown) {
        log::error("a handler failed", {{"path", std::string_view(exchange->request().path)}, {"what", thrown.what()}});
        refuse_(exchange, error(Code::kInternal, "the server failed at this request"));
      }
    };
    if (!queue_.add(guarded)) refuse_(exchange, error(Code::kOverloaded, "too many long requests wait"));
  }
  void stop() { queue_.stop(); }

 private:
  const Refuse refuse_;
  WorkQueue queue_;  // last: its threads refuse, too
};

}  // namespace bolide::server
