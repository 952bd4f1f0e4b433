// Measures the thread pool: the cost of an empty run, the scaling of a run of 8 chunks of 20 us, and what a foreign
// process that spins on one of our processors does to it. Prints medians of 7; takes about 20 seconds on an idle
// machine. Measurements during which other programs ran are thrown away and repeated, 50 times at most.
#include <fmt/core.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "base/cpu.h"
#include "base/workers.h"

namespace bolide {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// A fixed amount of arithmetic (not of time, which a starved thread would also see pass): about a nanosecond a step.
volatile double g_sink;
void work(int64_t steps) {
  double x = 1.0;
  for (int64_t i = 0; i < steps; ++i) x = x * 0.999999 + 1e-9;
  g_sink = x;
}

int64_t steps_for(double seconds) {
  constexpr int64_t kSteps = 1'000'000;
  double best = 1.0;
  for (int i = 0; i < 10; ++i) {
    const auto start = Clock::now();
    work(kSteps);
    best = std::min(best, seconds_since(start));
  }
  return static_cast<int64_t>(seconds / best * kSteps);
}

double empty_run_ns(Workers& workers) {
  constexpr int kRuns = 50'000;
  for (int i = 0; i < 1000; ++i) workers.run(workers.threads(), [](int64_t, int) {});
  const auto start = Clock::now();
  for (int i = 0; i < kRuns; ++i) workers.run(workers.threads(), [](int64_t, int) {});
  return seconds_since(start) / kRuns * 1e9;
}

// Runs a second of 8 x 20 us each, for `seconds`.
double runs_per_second(Workers& workers, int64_t steps, double seconds) {
  int64_t runs = 0;
  const auto start = Clock::now();
  double passed = 0;
  for (; passed < seconds; passed = seconds_since(start), ++runs)
    workers.run(8, [steps](int64_t, int) { work(steps); });
  return static_cast<double>(runs) / passed;
}

// What sharing costs when every thread takes part: the time of a run of one 5 us chunk per thread, less 5 us.
double sharing_ns(Workers& workers, int64_t steps) {
  constexpr int kRuns = 5'000;
  const auto start = Clock::now();
  for (int i = 0; i < kRuns; ++i) work(steps);
  const double alone = seconds_since(start);
  const auto shared_start = Clock::now();
  for (int i = 0; i < kRuns; ++i) workers.run(workers.threads(), [steps](int64_t, int) { work(steps); });
  return (seconds_since(shared_start) - alone) / kRuns * 1e9;
}

// A child process that spins on the last processor this process may use; it dies with us.
pid_t start_spinner() {
  cpu_set_t usable;
  ::sched_getaffinity(0, sizeof usable, &usable);
  int last = 0;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &usable)) last = cpu;
  const pid_t child = ::fork();
  if (child != 0) return child;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(last, &one);
  ::sched_setaffinity(0, sizeof one, &one);
  for (;;) work(1'000'000);
}

double clock_seconds(clockid_t clock) {
  timespec time{};
  ::clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Processor time that programs other than this one and the spinner have used since the machine started.
double foreign_seconds(pid_t spinner) {
  std::ifstream file("/proc/stat");
  std::string name;
  double ticks = 0, user = 0, nice = 0, system = 0, idle = 0, wait = 0, interrupt = 0, soft = 0, steal = 0;
  file >> name >> user >> nice >> system >> idle >> wait >> interrupt >> soft >> steal;
  ticks = user + nice + system + interrupt + soft + steal;
  double own = clock_seconds(CLOCK_PROCESS_CPUTIME_ID);
  clockid_t clock{};
  if (spinner > 0 && ::clock_getcpuclockid(spinner, &clock) == 0) own += clock_seconds(clock);
  return ticks / static_cast<double>(::sysconf(_SC_CLK_TCK)) - own;
}

int main_in(int threads) {
  fmt::print("{}; {} threads, medians of 7\n", describe(detect_cpu()), threads);
  const int64_t steps = steps_for(20e-6);

  const auto compare = [&](std::string_view title, double seconds, pid_t spinner) {
    // As a program would see it: pools live on from one measurement to the next.
    Workers single(1);
    Workers all(threads);
    std::vector<double> one, many, ratios;
    int disturbed = 0;
    while (ratios.size() < 7 && disturbed < 50) {
      const double foreign_before = foreign_seconds(spinner);
      const double one_rate = runs_per_second(single, steps, seconds);
      const double many_rate = runs_per_second(all, steps, seconds);
      if (foreign_seconds(spinner) - foreign_before > 0.05 * 2 * seconds) {
        ++disturbed;
        continue;
      }
      one.push_back(one_rate);
      many.push_back(many_rate);
      ratios.push_back(many_rate / one_rate);
    }
    if (ratios.empty()) {
      fmt::print("{}: the machine was never quiet\n", title);
      return;
    }
    fmt::print(
        "{}: 1 thread {:.0f} runs/s, {} threads {:.0f} runs/s, ratio of medians {:.3f}; paired ratios median "
        "{:.3f} min {:.3f} max {:.3f} ({} pairs, {} disturbed ones thrown away)\n",
        title, median(one), threads, median(many), median(many) / median(one), median(ratios),
        *std::min_element(ratios.begin(), ratios.end()), *std::max_element(ratios.begin(), ratios.end()), ratios.size(),
        disturbed);
  };

  {
    Workers workers(threads);
    std::vector<double> ns;
    for (int i = 0; i < 7; ++i) ns.push_back(empty_run_ns(workers));
    fmt::print("empty run: median {:.0f} ns, min {:.0f}, max {:.0f}\n", median(ns),
               *std::min_element(ns.begin(), ns.end()), *std::max_element(ns.begin(), ns.end()));
    for (double& value : ns) value = sharing_ns(workers, steps / 4);
    fmt::print("one 5 us chunk per thread, less 5 us: median {:.0f} ns, min {:.0f}, max {:.0f}\n", median(ns),
               *std::min_element(ns.begin(), ns.end()), *std::max_element(ns.begin(), ns.end()));
  }
  compare("8 chunks of 20 us", 0.5, 0);

  const pid_t spinner = start_spinner();
  if (spinner < 0) return EXIT_FAILURE;
  compare("with a spinning neighbour", 0.5, spinner);
  Workers workers(threads);
  runs_per_second(workers, steps, 1.0);
  ::kill(spinner, SIGKILL);
  ::waitpid(spinner, nullptr, 0);
  const auto gone = Clock::now();
  while (workers.team() < threads && seconds_since(gone) < 5) workers.run(8, [steps](int64_t, int) { work(steps); });
  fmt::print("after the neighbour left: {} threads again after {:.0f} ms\n", workers.team(), seconds_since(gone) * 1e3);
  return EXIT_SUCCESS;
}

}  // namespace
}  // namespace bolide

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : bolide::detect_cpu().cores();
  return bolide::main_in(std::clamp(threads, 1, 1024));
}
