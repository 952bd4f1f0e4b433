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

struct Timed {
  int64_t size = 0;
  double first_ms = 0, steady_ms = 0;
};

Result<double> time_run(NetworkSession& network, const std::vector<AnyValue>& inputs) {
  const auto start = std::chrono::steady_clock::now();
  BOLIDE_TRY(network.run(inputs));
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

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
    BOLIDE_TRY(calls[i].first_ms, time_run(network, inputs));
    std::vector<double> steady;
    for (int run = 0; run < kSteadyRuns; ++run) {
      BOLIDE_TRY(const double ms, time_run(network, inputs));
      steady.push_back(ms);
    }
    calls[i].steady_ms = median(steady);
  }
  line.clear();
  std::vector<double> ratios;
  std::vector<Timed> stalled;
  for (const Timed& call : calls) {
    ratios.push_back(call.first_ms / call.steady_ms);
    if (ratios.back() > kStall) stalled.push_back(call);
  }
  const double share = 100. * static_cast<double>(stalled.size()) / static_cast<double>(calls.size());
  if (flags.json) {
    ordered_json out = {
        {"model", flags.path},
        {"machine", network.device().name},
        {"threads", network.device().threads},
        {"dim", sizes.dim},
        {"sizes", {sizes.low, sizes.high}},
        {"ratio", {{"median", median(ratios)}, {"p99", quantile(ratios, 0.99)}, {"max", quantile(ratios, 1)}}},
        {"slower_than_twice_percent", share},
        {"slow", ordered_json::array()}};
    for (const Timed& call : stalled)
      out["slow"].push_back({{"size", call.size}, {"first_ms", call.first_ms}, {"steady_ms", call.steady_ms}});
    std::cout << out.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << std::endl;
    return {};
  }
  fmt::print("{}, {} threads, {}\n", network.device().name, network.device().threads, to_string(network.device().isa));
  fmt::print("{:<14}{} = {} to {}, each size's first call against the median of the {} after it\n", "sizes", sizes.dim,
             sizes.low, sizes.high, kSteadyRuns);
  fmt::print("{:<14}median {:.3f}, p99 {:.3f}, max {:.3f}\n", "ratio", median(ratios), quantile(ratios, 0.99),
             quantile(ratios, 1));
  fmt::print("{:<14}{} of {} ({:.2f} %)\n", "above twice", stalled.size(), calls.size(), share);
  for (const Timed& call : stalled)
    fmt::print("{:<14}{} = {}: {:.3f} ms, then {:.3f}\n", "", sizes.dim, call.size, call.first_ms, call.steady_ms);
  return {};
}

}  // namespace bolide::cli
