#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "measure/load/summary.h"

namespace bolide::load {
namespace {

using Json = nlohmann::ordered_json;

// Three digits that matter.
std::string milliseconds(double seconds) {
  const double ms = seconds * 1e3;
  return ms >= 100 ? fmt::format("{:.0f}", ms) : ms >= 10 ? fmt::format("{:.1f}", ms) : fmt::format("{:.2f}", ms);
}

// "412 [398, 431]"; "[398, >431]": the samples do not say how far it may go.
std::string with_interval(const Percentile& percentile) {
  return fmt::format("{} [{}, {}{}]", milliseconds(percentile.value), milliseconds(percentile.interval.low),
                     percentile.interval.confidence < 0.949 ? ">" : "", milliseconds(percentile.interval.high));
}

std::string left_out_text(const Summary& point) {
  if (point.left_out == 0) return {};
  return fmt::format(" (left out: {} answers, first token after up to {} ms)", point.left_out,
                     milliseconds(point.left_out_ttft_max));
}

std::string row(std::string_view name, const Distribution& distribution) {
  if (distribution.samples == 0) return fmt::format("  {:<22} none\n", name);
  std::string line = fmt::format("  {:<22}", name);
  for (const Percentile& percentile : distribution.percentiles)
    line += fmt::format("{:<26}", with_interval(percentile));
  while (line.ends_with(' ')) line.pop_back();
  return line + "\n";
}

Json to_json(const Distribution& distribution) {
  Json out = {{"samples", distribution.samples},
              {"mean", distribution.mean * 1e3},
              {"min", distribution.min * 1e3},
              {"max", distribution.max * 1e3}};
  for (const Percentile& percentile : distribution.percentiles) {
    if (distribution.samples == 0) break;
    out[fmt::format("p{:g}", percentile.q * 100)] = {{"value", percentile.value * 1e3},
                                                     {"low", percentile.interval.low * 1e3},
                                                     {"high", percentile.interval.high * 1e3},
                                                     {"confidence", percentile.interval.confidence},
                                                     {"effective_samples", percentile.effective}};
  }
  return out;
}

Json to_json(const Promise& promise) {
  Json out = Json::object();
  if (promise.ttft_s) out["ttft_ms"] = *promise.ttft_s * 1e3;
  if (promise.itl_s) out["itl_ms"] = *promise.itl_s * 1e3;
  if (promise.gap_s) out["gap_ms"] = *promise.gap_s * 1e3;
  if (promise.e2e_s) out["e2e_ms"] = *promise.e2e_s * 1e3;
  return out;
}

Json to_json(const Summary& point) {
  Json faults = Json::object();
  for (const auto& [kind, fault] : point.faults) faults[kind] = {{"count", fault.count}, {"example", fault.example}};
  Json load = point.concurrency > 0 ? Json{{"kind", "closed"}, {"concurrency", point.concurrency}}
                                    : Json{{"kind", "open"}, {"rate", point.rate}};
  Json out = {{"load", load},
              {"requests",
               {{"sent", point.requests},
                {"ok", point.ok},
                {"failed", point.failed},
                {"interrupted", point.interrupted},
                {"counted", point.counted},
                {"counted_ok", point.counted_ok}}},
              {"errors", faults},
              {"steady_state",
               {{"found", point.steady.found},
                {"warmup_s", point.steady.warmup_s},
                {"left_out", point.left_out},
                {"left_out_ttft_max_ms", point.left_out_ttft_max * 1e3},
                {"method", "MSER-5 on output tokens/s and time to first token"},
                {"reason", point.steady.reason}}},
              {"duration_s", point.duration_s},
              {"window_s", point.window_s},
              {"output_tokens_per_s", point.output_tokens_per_s},
              {"requests_per_s", point.requests_per_s},
              {"output_tokens_per_request", point.output_tokens},
              {"events_per_token", point.events_per_token},
              {"ttft_ms", to_json(point.ttft)},
              {"itl_ms", to_json(point.itl)},
              {"gap_ms", to_json(point.gap)},
              {"e2e_ms", to_json(point.e2e)}};
  if (point.prompt_tokens_known) out["prompt_tokens_per_request"] = point.prompt_tokens;
  if (point.promise.any())
    out["goodput"] = {
        {"promise", to_json(point.promise)},
        {"kept", point.kept},
        {"share", point.counted > 0 ? static_cast<double>(point.kept) / static_cast<double>(point.counted) : 0},
        {"share_low", point.kept_share.low},
        {"share_high", point.kept_share.high},
        {"requests_per_s", point.goodput_per_s}};
  out["generator"] = {{"kept_plan", point.kept_plan},
                      {"reason", point.kept_plan_reason},
                      {"late_ms_p50", point.late_p50_s * 1e3},
                      {"late_ms_p99", point.late_p99_s * 1e3},
                      {"late_ms_max", point.late_max_s * 1e3},
                      {"sent_per_s", point.sent_per_s},
                      {"processor_share", point.processor_share},
                      {"processor_us_per_event", point.processor_us_per_event},
                      {"ended_by_user", point.by_user}};
  return out;
}

}  // namespace

std::string load_name(const Summary& point) {
  return point.concurrency > 0 ? fmt::format("concurrency {}", point.concurrency)
                               : fmt::format("{:g} requests/s", point.rate);
}

std::string table_text(std::span<const Summary> points) {
  bool promised = false;
  for (const Summary& point : points) promised = promised || point.promise.any();
  std::string text =
      fmt::format("{:<18}{:>8}{:>8}{:>10}{:>18}{:>16}{:>18}{}\n", "load", "answers", "errors", "tokens/s",
                  "first P50/P99 ms", "token P50/P99", "whole P50/P99 ms", promised ? "   promise kept" : "");
  for (const Summary& point : points) {
    const auto pair = [](const Distribution& d) {
      return d.samples == 0
                 ? std::string("-")
                 : fmt::format("{}/{}", milliseconds(d.percentiles[0].value), milliseconds(d.percentiles[3].value));
    };
    text += fmt::format("{:<18}{:>8}{:>8}{:>10.1f}{:>18}{:>16}{:>18}", load_name(point), point.ok, point.failed,
                        point.output_tokens_per_s, pair(point.ttft), pair(point.gap), pair(point.e2e));
    if (promised && point.counted > 0)
      text += fmt::format("{:>13.1f} %", 100.0 * static_cast<double>(point.kept) / static_cast<double>(point.counted));
    if (!point.steady.found) text += "  not steady";
    if (!point.kept_plan) text += "  generator late";
    text += "\n";
  }
  return text;
}

std::string details_text(const Summary& point) {
  std::string text = fmt::format("{}: {} requests in {:.1f} s{}", load_name(point), point.requests, point.duration_s,
                                 point.by_user ? ", ended early" : "");
  if (point.steady.found)
    text += fmt::format(", {:.1f} s of it warm-up{}\n", point.steady.warmup_s, left_out_text(point));
  else
    text += fmt::format("\n  no steady state: {}; everything counts\n", point.steady.reason);
  text += fmt::format("  {:<22}{:<26}{:<26}{:<26}{}\n", "ms [95 % interval]", "P50", "P90", "P95", "P99");
  text += row("first token", point.ttft);
  text += row("between tokens", point.gap);
  text += row("a request's mean", point.itl);
  text += row("whole answer", point.e2e);
  text += fmt::format("  {:.1f} output tokens/s, {:.2f} answers/s", point.output_tokens_per_s, point.requests_per_s);
  if (point.prompt_tokens_known) text += fmt::format("; prompts of {:.1f} tokens", point.prompt_tokens);
  text += fmt::format("; answers of {:.1f}", point.output_tokens);
  if (point.events_per_token < 0.99)
    text += fmt::format(" in {:.2f} events each (\"between tokens\" is between events)",
                        point.events_per_token * point.output_tokens);
  text += "\n";
  if (point.promise.any() && point.counted > 0)
    text += fmt::format("  promise {}: kept for {:.1f} % of the requests [{:.1f}, {:.1f}], {:.2f} a second\n",
                        to_string(point.promise),
                        100.0 * static_cast<double>(point.kept) / static_cast<double>(point.counted),
                        100 * point.kept_share.low, 100 * point.kept_share.high, point.goodput_per_s);
  for (const auto& [kind, fault] : point.faults)
    text += fmt::format("  error {} x {}: {}\n", kind, fault.count, fault.example);
  text += fmt::format(
      "  generator: late by {} ms P50, {} ms P99, {} ms at most; {:.1f} % of a processor, {:.1f} us an event\n",
      milliseconds(point.late_p50_s), milliseconds(point.late_p99_s), milliseconds(point.late_max_s),
      100 * point.processor_share, point.processor_us_per_event);
  if (!point.kept_plan) text += fmt::format("  the generator did not keep its plan: {}\n", point.kept_plan_reason);
  return text;
}

std::string json_text(const RunDescription& run, std::span<const Summary> points) {
  Json out = {{"schema", 1},
              {"url", run.url},
              {"model", run.model},
              {"dialect", run.dialect},
              {"requests", run.requests},
              {"arrival", run.arrival},
              {"seed", run.seed},
              {"machine", run.machine},
              {"commit", run.commit},
              {"notes", run.notes}};
  Json list = Json::array();
  for (const Summary& point : points) list.push_back(to_json(point));
  out["points"] = list;
  return out.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace bolide::load
