// What a run of the load generator means: where it was steady, latencies, rates, promises kept, and whether the
// generator kept up with its own plan.
//
// Thread rules: pure functions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "measure/load/generator.h"
#include "measure/load/percentiles.h"

namespace bolide::load {

// Bounds of one request in seconds; none: no promise of that kind.
struct Promise {
  std::optional<double> ttft_s;  // to the first token
  std::optional<double> itl_s;   // mean time between its tokens
  std::optional<double> gap_s;   // longest time between two events
  std::optional<double> e2e_s;   // to the end
  bool any() const { return ttft_s || itl_s || gap_s || e2e_s; }
};
// "ttft=500ms,itl=50ms,e2e=10s". kInvalid names what is wrong.
Result<Promise> parse_promise(std::string_view text);
std::string to_string(const Promise& promise);

struct SteadyState {
  bool found = false;
  double warmup_s = 0;  // 0 if not found: everything counts
  std::string reason;   // why there is none
};

struct Summary {
  // What was asked for: one of the two is 0.
  int32_t concurrency = 0;
  double rate = 0;

  int64_t requests = 0, ok = 0, failed = 0, interrupted = 0;
  std::map<std::string, Fault> faults;
  double duration_s = 0;  // until the last request was sent
  SteadyState steady;

  // Of requests due after the warm-up.
  int64_t counted = 0, counted_ok = 0;
  double window_s = 0;   // in which they were due
  int64_t left_out = 0;  // answers of the warm-up, and the worst of them: a stall at the start is no secret
  double left_out_ttft_max = 0;
  double requests_per_s = 0, output_tokens_per_s = 0;
  double prompt_tokens = 0, output_tokens = 0;  // means of a request
  bool prompt_tokens_known = false;
  double events_per_token = 1;
  Distribution ttft, itl, gap, e2e;  // seconds; itl: a request's mean, gap: between events
  Promise promise;
  int64_t kept = 0;  // of `counted`
  Interval kept_share;
  double goodput_per_s = 0;

  // The generator itself.
  double late_p50_s = 0, late_p99_s = 0, late_max_s = 0;  // of all requests: sent behind when they were due
  double sent_per_s = 0;
  bool kept_plan = true;
  std::string kept_plan_reason;  // why not
  double processor_share = 0;    // of one processor
  double processor_us_per_event = 0;
  bool by_user = false;  // the run was ended early

  // For plots.
  std::vector<double> tokens_per_s;  // in windows of `series_window_s`, of the whole run
  double series_window_s = 0;
  std::vector<std::pair<double, double>> ttft_points;                   // due, ttft; at most 2000
  std::vector<double> ttft_sorted, itl_sorted, gap_sorted, e2e_sorted;  // at most 400 quantiles, evenly spaced
};

Summary summarise_run(const RunLog& log, const LoadPlan& plan, const Promise& promise, double rate);

// A table of all points, then each in detail, for a terminal.
std::string table_text(std::span<const Summary> points);
std::string details_text(const Summary& point);
std::string load_name(const Summary& point);  // "concurrency 4", "2.5 requests/s"

struct RunDescription {
  std::string url, model, dialect, requests, arrival, machine, commit;
  uint64_t seed = 0;
  std::vector<std::string> notes;  // what the reader must know: "the server refuses ignore_eos"
};
std::string json_text(const RunDescription& run, std::span<const Summary> points);
// One page, nothing from outside.
std::string html_text(const RunDescription& run, std::span<const Summary> points);

}  // namespace bolide::load
