#include "measure/load/summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "measure/load/steady_state.h"

namespace bolide::load {
namespace {

constexpr size_t kPointsMax = 2000;
constexpr size_t kCurveMax = 400;
constexpr double kLateSeconds = 0.001;  // lateness below it is no matter
constexpr double kBusyShare = 0.8;      // a generator that needs more of a processor measures itself

// Windows of about a 200th of the run, whole multiples of the log's.
size_t windows_together(double duration_s) {
  const double wanted = std::clamp(duration_s / 200, kWindowSeconds, 1.0);
  return std::max<size_t>(1, static_cast<size_t>(std::lround(wanted / kWindowSeconds)));
}

std::vector<double> rate_series(const RunLog& log, size_t together, double end_s) {
  const auto count = static_cast<size_t>(end_s / kWindowSeconds) / together;
  std::vector<double> series(count, 0.0);
  for (size_t i = 0; i < log.events_per_window.size() && i / together < count; ++i)
    series[i / together] += log.events_per_window[i];
  for (double& value : series) value /= static_cast<double>(together) * kWindowSeconds;
  return series;
}

SteadyState find_steady(const RunLog& log, std::span<const double> series, double window_s, double end_s) {
  SteadyState steady;
  std::vector<double> ttft, due;
  for (const RequestRecord& record : log.requests)
    if (record.ok) {
      ttft.push_back(record.first_s - record.due_s);
      due.push_back(record.due_s);
    }
  const Truncation rate = mser5(series), first = mser5(ttft);
  if (rate.judged && !rate.steady) {
    steady.reason = "throughput still changes at the end";
  } else if (first.judged && !first.steady) {
    steady.reason =
        "the time to the first token still changes at the end; so it does where the load is more than the "
        "server can take";
  } else if (!rate.judged || !first.judged) {
    steady.reason = fmt::format("the run is too short to tell: {} answers, {} windows, 50 of each are needed",
                                ttft.size(), series.size());
    const size_t fewest = std::min(ttft.size(), series.size());
    if (fewest > 0)
      steady.reason += fmt::format("; try --duration {:.0f}", std::ceil(end_s * 60 / static_cast<double>(fewest)));
  }
  if (!steady.reason.empty()) return steady;
  steady.found = true;
  steady.warmup_s = static_cast<double>(rate.observations) * window_s;
  if (first.observations > 0) steady.warmup_s = std::max(steady.warmup_s, due[first.observations]);
  return steady;
}

std::vector<double> curve_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  if (values.size() <= kCurveMax) return values;
  std::vector<double> curve(kCurveMax);
  for (size_t i = 0; i < kCurveMax; ++i) curve[i] = values[i * (values.size() - 1) / (kCurveMax - 1)];
  return curve;
}

double mean_gap(const RequestRecord& record) {
  const int64_t tokens = std::max<int64_t>(record.events, record.output_tokens);
  return tokens < 2 ? 0 : (record.last_s - record.first_s) / static_cast<double>(tokens - 1);
}

bool keeps(const Promise& promise, const RequestRecord& record) {
  return record.ok && record.first_s - record.due_s <= promise.ttft_s.value_or(HUGE_VAL) &&
         mean_gap(record) <= promise.itl_s.value_or(HUGE_VAL) && record.gap_max_s <= promise.gap_s.value_or(HUGE_VAL) &&
         record.end_s - record.due_s <= promise.e2e_s.value_or(HUGE_VAL);
}

void judge_generator(const RunLog& log, const LoadPlan& plan, Summary* out) {
  std::vector<double> late;
  for (const RequestRecord& record : log.requests) late.push_back(record.sent_s - record.due_s);
  if (!late.empty()) {
    constexpr double kQs[] = {0.5, 0.99};
    const std::vector<double> found = quantiles(late, kQs);
    out->late_p50_s = found[0];
    out->late_p99_s = found[1];
    out->late_max_s = *std::max_element(late.begin(), late.end());
  }
  if (log.end_s > 0) out->processor_share = log.processor_s / log.end_s;
  if (log.events > 0) out->processor_us_per_event = 1e6 * log.processor_s / static_cast<double>(log.events);
  if (log.issue_end_s > 0) out->sent_per_s = static_cast<double>(log.requests.size()) / log.issue_end_s;
  const double bound = std::max(kLateSeconds, 0.01 * out->ttft.percentiles[0].value);
  const bool open_loop = !plan.arrivals_s.empty();
  if (open_loop && !log.interrupted && log.requests.size() < plan.arrivals_s.size())
    out->kept_plan_reason = "not every request could be sent";
  else if (out->late_p99_s > bound)
    out->kept_plan_reason = fmt::format(
        "1 % of the requests were sent more than {:.1f} ms late; latencies count from when they were due, so that it "
        "is in them",
        1e3 * out->late_p99_s);
  else if (out->processor_share > kBusyShare)
    out->kept_plan_reason = fmt::format("it needed {:.0f} % of a processor", 100 * out->processor_share);
  out->kept_plan = out->kept_plan_reason.empty();
}

}  // namespace

Result<Promise> parse_promise(std::string_view text) {
  Promise promise;
  while (!text.empty()) {
    const std::string_view part = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), part.size() + 1));
    const size_t equals = std::min(part.find('='), part.size());
    const std::string_view name = part.substr(0, equals);
    std::string_view value = part.substr(std::min(part.size(), equals + 1));
    double number = 0;
    const auto parsed = std::from_chars(value.data(), value.data() + value.size(), number);
    const std::string_view unit(parsed.ptr, static_cast<size_t>(value.data() + value.size() - parsed.ptr));
    const double scale = unit == "ms" ? 1e-3 : unit == "s" ? 1 : unit == "us" ? 1e-6 : 0;
    std::optional<double>* bound = name == "ttft"  ? &promise.ttft_s
                                   : name == "itl" ? &promise.itl_s
                                   : name == "gap" ? &promise.gap_s
                                   : name == "e2e" ? &promise.e2e_s
                                                   : nullptr;
    if (bound == nullptr || parsed.ec != std::errc() || scale == 0 || !(number > 0) || !std::isfinite(number))
      return error(
          Code::kInvalid,
          fmt::format("--promise: \"{}\" is not ttft, itl, gap or e2e with a time: ttft=500ms,itl=50ms,e2e=10s",
                      part.substr(0, 60)));
    *bound = number * scale;
  }
  return promise;
}

std::string to_string(const Promise& promise) {
  std::string text;
  const auto add = [&](std::string_view name, const std::optional<double>& bound) {
    if (bound) text += fmt::format("{}{} <= {:g} ms", text.empty() ? "" : ", ", name, *bound * 1e3);
  };
  add("ttft", promise.ttft_s);
  add("itl", promise.itl_s);
  add("gap", promise.gap_s);
  add("e2e", promise.e2e_s);
  return text;
}

Summary summarise_run(const RunLog& log, const LoadPlan& plan, const Promise& promise, double rate) {
  Summary out;
  out.rate = rate;
  if (plan.arrivals_s.empty()) out.concurrency = plan.concurrency;
  out.faults = log.faults;
  // Behind the last request the load falls, and counts no more; but a run that is mostly its own end counts whole.
  const double end = 2 * log.issue_end_s >= log.end_s ? log.issue_end_s : log.end_s;
  out.duration_s = end;
  out.promise = promise;
  out.by_user = log.interrupted;
  const size_t together = windows_together(end);
  out.series_window_s = static_cast<double>(together) * kWindowSeconds;
  out.tokens_per_s = rate_series(log, together, end);
  out.steady = find_steady(log, out.tokens_per_s, out.series_window_s, end);
  const double from = out.steady.warmup_s;
  out.window_s = end - from;

  std::vector<double> ttft, itl, gap, e2e;
  int64_t prompts = 0, prompt_tokens = 0, output_tokens = 0, events = 0;
  for (const RequestRecord& record : log.requests) {
    ++out.requests;
    out.ok += record.ok ? 1 : 0;
    out.interrupted += record.interrupted ? 1 : 0;
    out.failed += !record.ok && !record.interrupted ? 1 : 0;
    if (record.ok) out.ttft_points.emplace_back(record.due_s, record.first_s - record.due_s);
    if (record.due_s < from && record.ok) {
      ++out.left_out;
      out.left_out_ttft_max = std::max(out.left_out_ttft_max, record.first_s - record.due_s);
    }
    if (record.due_s < from || record.interrupted) continue;
    ++out.counted;
    out.kept += keeps(promise, record) ? 1 : 0;
    if (!record.ok) continue;
    ++out.counted_ok;
    ttft.push_back(record.first_s - record.due_s);
    e2e.push_back(record.end_s - record.due_s);
    if (mean_gap(record) > 0) itl.push_back(mean_gap(record));
    events += record.events;
    output_tokens += record.output_tokens >= 0 ? record.output_tokens : record.events;
    if (record.prompt_tokens >= 0) {
      ++prompts;
      prompt_tokens += record.prompt_tokens;
    }
  }
  for (const Gap& each : log.gaps)
    if (each.end_s >= from && each.end_s <= end) gap.push_back(each.seconds);
  out.ttft = distribution_of(ttft);
  out.itl = distribution_of(itl);
  out.gap = distribution_of(gap);
  out.e2e = distribution_of(e2e);
  if (output_tokens > 0) out.events_per_token = static_cast<double>(events) / static_cast<double>(output_tokens);
  out.prompt_tokens_known = prompts > 0;
  if (prompts > 0) out.prompt_tokens = static_cast<double>(prompt_tokens) / static_cast<double>(prompts);
  if (out.counted_ok > 0) out.output_tokens = static_cast<double>(output_tokens) / static_cast<double>(out.counted_ok);
  if (out.window_s > 0) {
    double seen = 0;  // events in the window, partial windows left out
    const auto first = static_cast<size_t>(std::ceil(from / kWindowSeconds));
    const auto last = static_cast<size_t>(end / kWindowSeconds);
    for (size_t i = first; i < std::min(last, log.events_per_window.size()); ++i) seen += log.events_per_window[i];
    if (last > first)
      out.output_tokens_per_s = seen / out.events_per_token / (static_cast<double>(last - first) * kWindowSeconds);
    out.requests_per_s = static_cast<double>(out.counted_ok) / out.window_s;
    out.goodput_per_s = static_cast<double>(out.kept) / out.window_s;
  }
  if (out.counted > 0) out.kept_share = share_interval(out.kept, out.counted);
  judge_generator(log, plan, &out);

  if (out.ttft_points.size() > kPointsMax) {
    for (size_t i = 0; i < kPointsMax; ++i)
      out.ttft_points[i] = out.ttft_points[i * out.ttft_points.size() / kPointsMax];
    out.ttft_points.resize(kPointsMax);
  }
  out.ttft_sorted = curve_of(std::move(ttft));
  out.itl_sorted = curve_of(std::move(itl));
  out.gap_sorted = curve_of(std::move(gap));
  out.e2e_sorted = curve_of(std::move(e2e));
  return out;
}

}  // namespace bolide::load
