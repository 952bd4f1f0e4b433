#include "base/workers.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/team_governor.h"

namespace bolide {
namespace {

constexpr size_t kLine = 64;                  // bytes; keeps what different threads write apart
constexpr int64_t kSpinNs = 100'000;          // how long a thread spins before it sleeps
constexpr int64_t kDenseGapNs = 100'000;      // runs closer together than this are a burst: sleepers are woken at once
constexpr int64_t kWorthWakingNs = 30'000;    // otherwise only for this much remaining work: a wake-up costs about that
constexpr int64_t kIdleGapNs = 1'000'000;     // a pause after which old waiting times say nothing
constexpr int64_t kWindowNs = 4'000'000;      // how often waiting times are looked at: about one slice of the scheduler
constexpr int64_t kWindowThreadNs = 500'000;  // and at least this per thread: looking costs 1 us per thread
constexpr int64_t kLateNs = 50'000;           // without waiting times: a worker this late was not running
constexpr int kThreadsMax = 4096;

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

inline void pause_cpu() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

int own_tid() {
  static thread_local const int tid = static_cast<int>(::syscall(SYS_gettid));
  return tid;
}

static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t) && std::atomic<uint32_t>::is_always_lock_free);

void futex_wait(std::atomic<uint32_t>& word, uint32_t expected) {
  ::syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT_PRIVATE, expected, nullptr, nullptr, 0);
}
void futex_wake(std::atomic<uint32_t>& word) {
  ::syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}

// How long a thread of this process has been ready to run but kept waiting for a processor, as the kernel counts it.
class RunDelay {
 public:
  RunDelay() = default;
  RunDelay(const RunDelay&) = delete;
  RunDelay& operator=(const RunDelay&) = delete;
  ~RunDelay() { close(); }

  void follow(int tid) {
    if (tid == tid_) return;
    close();
    tid_ = tid;
    if (tid != 0) fd_ = ::open(fmt::format("/proc/self/task/{}/schedstat", tid).c_str(), O_RDONLY | O_CLOEXEC);
    last_ns_ = 0;
    grown_ns();
  }

  // The growth since the last call; 0 when the kernel does not tell.
  int64_t grown_ns() {
    if (fd_ < 0) return 0;
    char text[96];
    const ssize_t size = ::pread(fd_, text, sizeof text - 1, 0);
    if (size <= 0) return 0;
    text[size] = '\0';
    char* rest = nullptr;
    const unsigned long long ran_ns = std::strtoull(text, &rest, 10);  // NOLINT(runtime/int)
    const int64_t delay_ns = std::strtoll(rest, nullptr, 10);
    known_ = ran_ns != 0;
    const int64_t grown = delay_ns - last_ns_;
    last_ns_ = delay_ns;
    return grown;
  }

  bool known() const { return known_; }

 private:
  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
    known_ = false;
  }

  int fd_ = -1;
  int tid_ = 0;
  int64_t last_ns_ = 0;
  bool known_ = false;
};

// The gate that workers pass to take part in a run, in one word: epoch (32 bits) | team (15) | closed (1) | inside
// (16). The caller opens it with a new epoch, closes it when no chunk is left, and waits until nobody is inside. A
// worker gets in only by a compare-and-swap on an open gate, so one that comes late never sees the job.
constexpr uint64_t kInsideMask = 0xffff;
constexpr uint64_t kClosed = uint64_t{1} << 16;
constexpr uint64_t gate_open(uint32_t epoch, int team) {
  return uint64_t{epoch} << 32 | static_cast<uint64_t>(team) << 17;
}
constexpr uint32_t gate_epoch(uint64_t gate) { return static_cast<uint32_t>(gate >> 32); }
constexpr int gate_team(uint64_t gate) { return static_cast<int>(gate >> 17 & 0x7fff); }
constexpr bool gate_closed(uint64_t gate) { return (gate & kClosed) != 0; }
constexpr uint64_t gate_inside(uint64_t gate) { return gate & kInsideMask; }

// Which pool's body this thread is in, so that a nested run is done inline under the same thread number.
struct Inside {
  const void* pool = nullptr;
  int thread = 0;
};
thread_local Inside t_inside;

class InsideScope {
 public:
  InsideScope(const void* pool, int thread) : saved_(t_inside) { t_inside = {pool, thread}; }
  InsideScope(const InsideScope&) = delete;
  InsideScope& operator=(const InsideScope&) = delete;
  ~InsideScope() { t_inside = saved_; }

 private:
  Inside saved_;
};

// Says that a run is over, however it ends.
class RunningScope {
 public:
  explicit RunningScope(std::atomic<bool>& running) : running_(running) {}
  RunningScope(const RunningScope&) = delete;
  RunningScope& operator=(const RunningScope&) = delete;
  ~RunningScope() { running_.store(false, std::memory_order_relaxed); }

 private:
  std::atomic<bool>& running_;
};

}  // namespace

struct Workers::Pool {
  explicit Pool(int count) : threads(count), governor(count), slots(count), delays(count) {}

  struct alignas(kLine) Slot {
    std::atomic<uint32_t> asleep{0};
    std::atomic<int> tid{0};
  };

  alignas(kLine) std::atomic<uint64_t> gate{kClosed};
  // Written by the caller while the gate is closed and nobody is inside; read by those inside.
  alignas(kLine) std::atomic<int64_t> next{0};
  int64_t chunks = 0;
  std::optional<Body> body;
  bool stop = false;
  // The first exception of a body: written by who has set `failed`, read by the caller when nobody is inside.
  std::atomic<bool> failed{false};
  std::exception_ptr failure;
  alignas(kLine) std::atomic<int> asleep_count{0};
  std::atomic<uint32_t> caller_asleep{0};

  // The caller's own.
  alignas(kLine) int threads;
  uint32_t epoch = 0;
  std::atomic<bool> running{false};
  std::atomic<int> team_shown{0};  // governor.team(), for other threads that ask
  int64_t last_end_ns = INT64_MIN / 2;
  TeamGovernor governor;
  bool window_valid = false;
  int64_t window_start_ns = 0;
  int64_t late_ns = 0;
  std::vector<Slot> slots;
  std::vector<RunDelay> delays;
  std::vector<std::thread> workers;

  void start();
  void open_gate(int team);
  void wake(int team);
  void wait_until_empty();
  void watch(int64_t start_ns, int64_t end_ns, int64_t waited_ns, int64_t chunk_ns);
  void begin_window(int64_t at_ns);

  bool is_open_to(int thread, uint32_t seen, uint64_t g) const {
    return !gate_closed(g) && gate_epoch(g) != seen && thread < gate_team(g);
  }
  uint64_t await_gate(int thread, uint32_t seen);
  void work(int thread);
  // In a handler of an exception: it is kept, and no other chunk begins.
  void fail() {
    if (!failed.exchange(true)) failure = std::current_exception();
    next.store(chunks, std::memory_order_relaxed);
  }
};

void Workers::Pool::start() {
  workers.reserve(threads - 1);
  for (int thread = 1; thread < threads; ++thread) {
    try {
      workers.emplace_back([this, thread] { work(thread); });
    } catch (const std::system_error&) {  // the system's limit of threads: those started will do
      break;
    }
  }
  threads = static_cast<int>(workers.size()) + 1;
  governor = TeamGovernor(threads);
  team_shown.store(threads, std::memory_order_relaxed);
}

// --- The caller's side ---

void Workers::Pool::open_gate(int team) { gate.store(gate_open(++epoch, team), std::memory_order_seq_cst); }

void Workers::Pool::wake(int team) {
  for (int thread = 1; thread < team; ++thread) {
    Slot& slot = slots[thread];
    if (slot.asleep.load(std::memory_order_seq_cst) == 0 || slot.asleep.exchange(0) == 0) continue;
    asleep_count.fetch_sub(1);
    futex_wake(slot.asleep);
  }
}

void Workers::Pool::wait_until_empty() {
  const auto empty = [this](std::memory_order order) { return gate_inside(gate.load(order)) == 0; };
  const int64_t deadline_ns = now_ns() + kSpinNs;
  do {
    for (int i = 0; i < 32; ++i) {
      if (empty(std::memory_order_acquire)) return;
      pause_cpu();
    }
  } while (now_ns() < deadline_ns);
  // Sleeping gives our processor to a starved worker.
  for (;;) {
    caller_asleep.store(1, std::memory_order_seq_cst);
    if (empty(std::memory_order_seq_cst)) break;
    futex_wait(caller_asleep, 1);
  }
  caller_asleep.store(0, std::memory_order_relaxed);
}

void Workers::Pool::begin_window(int64_t at_ns) {
  window_start_ns = at_ns;
  window_valid = true;
  late_ns = 0;
  delays[0].follow(own_tid());
  for (int thread = 0; thread < governor.team(); ++thread) {
    if (thread > 0) delays[thread].follow(slots[thread].tid.load(std::memory_order_relaxed));
    delays[thread].grown_ns();
  }
}

// After a run: looks at the waiting times once per window and tells the governor how many threads were starved.
void Workers::Pool::watch(int64_t start_ns, int64_t end_ns, int64_t waited_ns, int64_t chunk_ns) {
  if (!window_valid || start_ns - last_end_ns > kIdleGapNs) {
    begin_window(end_ns);
    return;
  }
  late_ns += waited_ns > std::max(kLateNs, 2 * chunk_ns) ? waited_ns : 0;
  const int64_t window_ns = end_ns - window_start_ns;
  const int team = governor.team();
  if (window_ns < std::max(kWindowNs, team * kWindowThreadNs)) return;
  const int64_t limit_ns = governor.starved_limit_ns(window_ns);
  int starved = 0;
  bool known = false;
  for (int thread = 0; thread < team; ++thread) {
    starved += delays[thread].grown_ns() > limit_ns ? 1 : 0;
    known |= delays[thread].known();
  }
  if (!known) starved = late_ns > limit_ns ? 1 : 0;
  governor.shrink(end_ns, starved);
  begin_window(end_ns);
}

void Workers::run(int64_t chunks, Body body) {
  if (chunks <= 0) return;
  if (pool_ != nullptr && t_inside.pool == pool_.get()) {
    for (int64_t chunk = 0; chunk < chunks; ++chunk) body(chunk, t_inside.thread);
    return;
  }
  if (chunks == 1 || pool_ == nullptr) {
    for (int64_t chunk = 0; chunk < chunks; ++chunk) body(chunk, 0);
    return;
  }
  Pool& pool = *pool_;
  BOLIDE_CHECK(!pool.running.exchange(true, std::memory_order_relaxed), "two threads call run of one Workers at once");
  const int64_t start_ns = now_ns();
  const int team_before = pool.governor.team();
  const int team = pool.governor.team_at(start_ns);
  if (team != team_before) pool.window_valid = false;
  const InsideScope inside(&pool, 0);
  if (team == 1) {
    const RunningScope ends(pool.running);
    for (int64_t chunk = 0; chunk < chunks; ++chunk) body(chunk, 0);
    return;
  }
  pool.body = body;
  pool.chunks = chunks;
  pool.next.store(1, std::memory_order_relaxed);  // chunk 0 is the caller's
  pool.open_gate(team);
  bool wake_decided = pool.asleep_count.load() <= pool.threads - team;
  if (!wake_decided && start_ns - pool.last_end_ns < kDenseGapNs) {
    pool.wake(team);
    wake_decided = true;
  }
  int64_t done = 0;
  try {
    for (int64_t chunk = 0; chunk < chunks; chunk = pool.next.fetch_add(1, std::memory_order_relaxed)) {
      ++done;
      body(chunk, 0);
      if (!wake_decided) {
        wake_decided = true;
        if ((now_ns() - start_ns) * (chunks - 1) > kWorthWakingNs) pool.wake(team);
      }
    }
  } catch (...) {
    pool.fail();
  }
  int64_t end_ns = now_ns();
  const int64_t chunk_ns = (end_ns - start_ns) / done;
  int64_t waited_ns = 0;
  if (gate_inside(pool.gate.fetch_or(kClosed, std::memory_order_acq_rel)) != 0) {
    pool.wait_until_empty();
    const int64_t empty_ns = now_ns();
    waited_ns = empty_ns - end_ns;
    end_ns = empty_ns;
  }
  pool.watch(start_ns, end_ns, waited_ns, chunk_ns);
  pool.team_shown.store(pool.governor.team(), std::memory_order_relaxed);
  pool.last_end_ns = end_ns;
  const RunningScope ends(pool.running);
  if (!pool.failed.load(std::memory_order_relaxed)) return;
  pool.failed.store(false, std::memory_order_relaxed);
  std::rethrow_exception(std::exchange(pool.failure, nullptr));
}

// --- A worker's side ---

// Returns a gate with another epoch than `seen` that was open to this thread; spins, then sleeps.
uint64_t Workers::Pool::await_gate(int thread, uint32_t seen) {
  Slot& slot = slots[thread];
  uint32_t noticed = seen;
  for (;;) {
    int64_t deadline_ns = now_ns() + kSpinNs;
    do {
      for (int i = 0; i < 32; ++i) {
        const uint64_t g = gate.load(std::memory_order_acquire);
        if (is_open_to(thread, seen, g)) return g;
        if (gate_epoch(g) != noticed && thread < gate_team(g)) {  // missed one: they come fast, keep spinning
          noticed = gate_epoch(g);
          deadline_ns = now_ns() + kSpinNs;
        }
        pause_cpu();
      }
    } while (now_ns() < deadline_ns);

    slot.asleep.store(1, std::memory_order_seq_cst);
    asleep_count.fetch_add(1, std::memory_order_seq_cst);
    const uint64_t g = gate.load(std::memory_order_seq_cst);
    if (is_open_to(thread, seen, g)) {
      if (slot.asleep.exchange(0) == 1) asleep_count.fetch_sub(1);
      return g;
    }
    while (slot.asleep.load(std::memory_order_acquire) == 1) futex_wait(slot.asleep, 1);
  }
}

void Workers::Pool::work(int thread) {
  slots[thread].tid.store(own_tid(), std::memory_order_relaxed);
  const InsideScope inside(this, thread);
  uint32_t seen = 0;
  for (;;) {
    uint64_t g = await_gate(thread, seen);
    if (!gate.compare_exchange_weak(g, g + 1, std::memory_order_acq_rel, std::memory_order_relaxed)) continue;
    seen = gate_epoch(g);
    if (stop) return;
    const int64_t count = chunks;
    const Body call = *body;
    try {
      for (int64_t chunk; (chunk = next.fetch_add(1, std::memory_order_relaxed)) < count;) call(chunk, thread);
    } catch (...) {
      fail();
    }
    const uint64_t before = gate.fetch_sub(1, std::memory_order_seq_cst);
    if (gate_closed(before) && gate_inside(before) == 1 && caller_asleep.load(std::memory_order_seq_cst) != 0) {
      caller_asleep.store(0, std::memory_order_seq_cst);
      futex_wake(caller_asleep);
    }
  }
}

// --- Life ---

Workers::Workers(int threads) {
  BOLIDE_CHECK(threads >= 1 && threads <= kThreadsMax, "a pool of {} threads", threads);
  if (threads == 1) return;
  pool_ = std::make_unique<Pool>(threads);
  pool_->start();
  threads_ = pool_->threads;
}

Workers::~Workers() {
  if (pool_ == nullptr) return;
  BOLIDE_CHECK(!pool_->running.load(std::memory_order_relaxed), "a Workers is destroyed while it runs");
  pool_->stop = true;
  pool_->open_gate(pool_->threads);
  pool_->wake(pool_->threads);
  for (std::thread& worker : pool_->workers) worker.join();
}

int Workers::team() const { return pool_ == nullptr ? 1 : pool_->team_shown.load(std::memory_order_relaxed); }

}  // namespace bolide
