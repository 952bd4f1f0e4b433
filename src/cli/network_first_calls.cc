// bolide bench --first-calls: does a network stall on shapes that it has not seen?
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <nlohmann/json.hpp>
#include <random>

#include "app/network.h"
#include "cli/flags.h"
#include "cli/network.h"
#include "measure/processor_time.h"
#include "measure/report.h"
#include "measure/statistics.h"

namespace bolide::cli {
namespace {

using nlohmann::ordered_json;

constexpr double kStall = 2;    // times the steady time of the same size
constexpr int kSteadyRuns = 7;  // of which the median counts
constexpr size_t kSizesMax = 1 << 16;

struct Sizes {
  std::string dim;
  int64_t low = 1, high = 1;
};

// "S=17:384".
Result<Sizes> parse_sizes(const std::string& text) {
  const size_t equals = text.find('='), colon = text.find(':', equals == std::string::npos ? 0 : equals);
  const auto refuse = [&] {
    return error(Code::kInvalid,
                 fmt::format("--first-calls {:.80}: expected NAME=LOW:HIGH, a dim that the inputs leave "
                             "open and its sizes, at most {}",
                             text, kSizesMax));
  };
  if (equals == std::string::npos || colon == std::string::npos) return refuse();
  const auto low = parse_shape(text.substr(equals + 1, colon - equals - 1)), high = parse_shape(text.substr(colon + 1));
  if (!low || !high || low->rank != 1 || high->rank != 1) return refuse();
  const int64_t first = (*low)[0], last = (*high)[0];
  if (first < 1 || last < first || last - first >= static_cast<int64_t>(kSizesMax)) return refuse();
  return Sizes{text.substr(0, equals), first, last};
}

// Processor time of all threads is there because a neighbour's work does not count in it.
struct Took {
  double ms = 0, cpu_ms = 0;
};
struct Timed {
  int64_t size = 0;
  Took first, steady;
};

Result<Took> time_run(NetworkSession& network, const std::vector<AnyValue>& inputs) {
  const auto start = std::chrono::steady_clock::now();
  const double cpu = process_cpu_seconds();
  BOLIDE_TRY(network.run(inputs));
  return Took{std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count(),
              (process_cpu_seconds() - cpu) * 1e3};
}

// The first calls of sizes beside their steady state, by one of the two times.
struct Ratios {
  std::vector<double> all;
  std::vector<Timed> stalled;
  Ratios(const std::vector<Timed>& calls, double Took::* time) {
    for (const Timed& call : calls) {
      all.push_back(call.first.*time / std::max(call.steady.*time, 1e-6));
      if (all.back() > kStall) stalled.push_back(call);
    }
  }
  double share_percent() const { return 100. * static_cast<double>(stalled.size()) / static_cast<double>(all.size()); }
  ordered_json to_json() const {
    return {{"median", median(all)}, {"p99", quantile(all, 0.99)}, {"max", quantile(all, 1)}};
  }
};

}  // namespace

Result<> bench_first_calls(const NetworkFlags& flags) {
  BOLIDE_TRY(const Sizes sizes, parse_sizes(flags.first_calls));
  NetworkFlags sized = flags;
  sized.dims.push_back(fmt::format("{}={}", sizes.dim, sizes.low));
  BOLIDE_TRY(NetworkSession network, open_network(sized));
  std::vector<Timed> calls;
  for (int64_t size = sizes.low; size <= sizes.high; ++size) calls.push_back({size});
  std::shuffle(calls.begin(), calls.end(), std::mt19937_64(flags.seed + 1));
  ProgressLine line;
  for (size_t i = 0; i < calls.size(); ++i) {
    line.show(fmt::format("{} of {} sizes", i, calls.size()));
    sized.dims.back() = fmt::format("{}={}", sizes.dim, calls[i].size);
    BOLIDE_TRY(const std::vector<AnyValue> inputs, network_inputs(network, sized, true));
    BOLIDE_TRY(calls[i].first, time_run(network, inputs));
    std::vector<double> steady, steady_cpu;
    for (int run = 0; run < kSteadyRuns; ++run) {
      BOLIDE_TRY(const Took took, time_run(network, inputs));
      steady.push_back(took.ms), steady_cpu.push_back(took.cpu_ms);
    }
    calls[i].steady = {median(steady), median(steady_cpu)};
  }
  line.clear();
  const Ratios wall(calls, &Took::ms), cpu(calls, &Took::cpu_ms);
  if (flags.json) {
    ordered_json out = {{"model", flags.path},
                        {"machine", network.device().name},
                        {"threads", network.device().threads},
                        {"dim", sizes.dim},
                        {"sizes", {sizes.low, sizes.high}},
                        {"ratio", wall.to_json()},
                        {"slower_than_twice_percent", wall.share_percent()},
                        {"slow", ordered_json::array()},
                        {"cpu_ratio", cpu.to_json()},
                        {"cpu_slower_than_twice_percent", cpu.share_percent()},
                        {"cpu_slow", ordered_json::array()}};
    const auto list = [&](const char* name, const Ratios& ratios) {
      for (const Timed& call : ratios.stalled)
        out[name].push_back({{"size", call.size},
                             {"first_ms", call.first.ms},
                             {"steady_ms", call.steady.ms},
                             {"first_cpu_ms", call.first.cpu_ms},
                             {"steady_cpu_ms", call.steady.cpu_ms}});
    };
    list("slow", wall), list("cpu_slow", cpu);
    std::cout << out.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << std::endl;
    return {};
  }
  fmt::print("{}, {} threads, {}\n", network.device().name, network.device().threads, to_string(network.device().isa));
  fmt::print("{:<14}{} = {} to {}, each size's first call against the median of the {} after it\n", "sizes", sizes.dim,
             sizes.low, sizes.high, kSteadyRuns);
  const auto print = [&](const char* name, const Ratios& ratios) {
    fmt::print("{:<14}median {:.3f}, p99 {:.3f}, max {:.3f}; above twice {} of {} ({:.2f} %)\n", name,
               median(ratios.all), quantile(ratios.all, 0.99), quantile(ratios.all, 1), ratios.stalled.size(),
               calls.size(), ratios.share_percent());
    for (const Timed& call : ratios.stalled)
      fmt::print("{:<14}{} = {}: {:.3f} ms, then {:.3f}; of processors {:.3f}, then {:.3f}\n", "", sizes.dim, call.size,
                 call.first.ms, call.steady.ms, call.first.cpu_ms, call.steady.cpu_ms);
  };
  print("ratio", wall), print("processors'", cpu);
  return {};
}

}  // namespace bolide::cli
