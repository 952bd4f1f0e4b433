// Workers: a persistent pool of threads for loops of 5 us to many ms, made and owned by whoever needs one.
//
// The caller is thread 0 and never waits for a worker that has not started: a run whose workers are late, asleep or
// starved is done by the caller alone. Workers spin for about 100 us after the last run, then sleep in the kernel.
// When the operating system keeps a thread of the team from running (a busy neighbour on one of our cores), the pool
// uses fewer threads and tries again later with exponential back-off (see TeamGovernor): `threads()` is the most that
// run uses, `team()` what it uses at the moment.
//
// Thread rules: one thread at a time may call run; it need not be the thread that made the pool. A run inside a body of
// the same pool is done inline by the thread that asks. What a body throws, run throws once no body runs any more.
#pragma once

#include <cstdint>
#include <memory>

#include "base/function_ref.h"

namespace bolide {

class Workers {
 public:
  // Called once per chunk. `thread` is in [0, threads()) and no two bodies run at once with the same value: it may
  // index scratch memory.
  using Body = FunctionRef<void(int64_t chunk, int thread)>;

  // `threads` >= 1 counts the calling thread. If the system refuses to start some, threads() says how many there are.
  explicit Workers(int threads);
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;
  ~Workers();

  int threads() const { return threads_; }
  int team() const;

  // Calls body(chunk, thread) for every chunk in [0, chunks), in any order, and returns when all are done; what bodies
  // wrote is visible to the caller then. One chunk, or one thread, runs inline.
  void run(int64_t chunks, Body body);

 private:
  struct Pool;

  int threads_ = 1;
  std::unique_ptr<Pool> pool_;  // null for one thread
};

}  // namespace bolide
