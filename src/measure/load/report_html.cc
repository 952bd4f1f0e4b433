// The report as one page: tables, and plots as inline SVG. No scripts, nothing from outside; what comes from a server
// is escaped.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "measure/load/summary.h"

namespace bolide::load {
namespace {

constexpr double kWidth = 460, kHeight = 220;
constexpr double kLeft = 52, kRight = 12, kTop = 26, kBottom = 34;  // around the plot's area

constexpr const char* kStyle = R"(<style>
:root{color-scheme:light dark;--ink:#1b1f24;--soft:#667;--line:#d5d9e0;--page:#fff;--a:#2563eb;--b:#d97706;--c:#059669;--d:#9333ea}
@media(prefers-color-scheme:dark){:root{--ink:#e6e8ec;--soft:#9aa3b2;--line:#3a404c;--page:#14171c;--a:#7aa2ff;--b:#f0a94a;--c:#4ccf9c;--d:#c58bff}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--page);max-width:1000px;margin:2rem auto;padding:0 1rem}
h1{font-size:1.4rem}h2{font-size:1.1rem;margin-top:2rem;border-top:1px solid var(--line);padding-top:1rem}
table{border-collapse:collapse;font-variant-numeric:tabular-nums}td,th{padding:.2rem .7rem;text-align:right;border-bottom:1px solid var(--line)}
td:first-child,th:first-child{text-align:left}.note{color:var(--soft)}.bad{color:#c2410c;font-weight:600}
.plots{display:flex;flex-wrap:wrap;gap:12px}svg text{fill:var(--soft);font-size:11px}svg .title{fill:var(--ink);font-size:12px}
svg .axis{stroke:var(--line);fill:none}svg .cut{stroke:var(--b);stroke-dasharray:4 3}
</style>)";

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '&': out += "&amp;"; break;
      case '"': out += "&quot;"; break;
      case '\'': out += "&#39;"; break;
      default: out += static_cast<unsigned char>(c) < 0x20 && c != '\n' ? ' ' : c;
    }
  }
  return out;
}

// 1, 2 or 5 times a power of ten, so that about five of them make `range`.
double tick_step(double range) {
  if (!(range > 0)) return 1;
  const double rough = range / 5, power = std::pow(10, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (rough <= factor * power) return factor * power;
  return 10 * power;
}

struct Curve {
  std::string name, colour;  // of a CSS variable
  std::vector<std::pair<double, double>> points;
  bool dots = false;
};

class Plot {
 public:
  Plot(std::string title, std::string x_name) : title_(std::move(title)), x_name_(std::move(x_name)) {}
  void add(Curve curve) {
    for (const auto& [x, y] : curve.points) {
      x_max_ = std::max(x_max_, x);
      y_max_ = std::max(y_max_, y);
    }
    curves_.push_back(std::move(curve));
  }
  void cut_at(double x) { cut_ = x; }
  void end_at(double y) { y_max_ = y; }

  std::string svg() const {
    std::string out = fmt::format(
        "<svg viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" role=\"img\"><text class=\"title\" x=\"{2}\" "
        "y=\"14\">{3}</text>",
        kWidth, kHeight, kLeft, escaped(title_));
    const double x_step = tick_step(x_max_), y_step = tick_step(y_max_);
    for (double x = 0; x <= x_max_ * 1.0001; x += x_step)
      out += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{:g}</text>", at_x(x),
                         kHeight - kBottom + 14, x);
    for (double y = 0; y <= y_max_ * 1.0001; y += y_step)
      out += fmt::format(
          "<path class=\"axis\" d=\"M{:.1f} {:.1f}H{:.1f}\"/><text x=\"{:.1f}\" y=\"{:.1f}\" "
          "text-anchor=\"end\">{:g}</text>",
          kLeft, at_y(y), kWidth - kRight, kLeft - 5, at_y(y) + 4, y);
    out += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>", kWidth - kRight, kHeight - 4,
                       escaped(x_name_));
    if (cut_ > 0)
      out +=
          fmt::format("<path class=\"cut\" d=\"M{:.1f} {:.1f}V{:.1f}\"/><text x=\"{:.1f}\" y=\"{:.1f}\">warm-up</text>",
                      at_x(cut_), kTop, kHeight - kBottom, at_x(cut_) + 3, kTop + 8);
    double legend = kLeft;
    for (const Curve& curve : curves_) {
      out += curve.dots ? dots(curve) : line(curve);
      if (curve.name.empty()) continue;
      out += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" style=\"fill:var(--{})\">{}</text>", legend, kHeight - 4,
                         curve.colour, escaped(curve.name));
      legend += 8 + 6.5 * static_cast<double>(curve.name.size());
    }
    return out + "</svg>";
  }

 private:
  double at_x(double x) const { return kLeft + (kWidth - kLeft - kRight) * (x_max_ > 0 ? x / x_max_ : 0); }
  double at_y(double y) const {
    return kHeight - kBottom - (kHeight - kTop - kBottom) * (y_max_ > 0 ? std::min(1.0, y / y_max_) : 0);
  }
  std::string line(const Curve& curve) const {
    std::string path;
    for (const auto& [x, y] : curve.points)
      path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", at_x(x), at_y(y));
    return path.empty() ? path
                        : fmt::format("<path d=\"{}\" style=\"fill:none;stroke:var(--{});stroke-width:1.5\"/>", path,
                                      curve.colour);
  }
  std::string dots(const Curve& curve) const {
    std::string out = fmt::format("<g style=\"fill:var(--{});fill-opacity:.5\">", curve.colour);
    for (const auto& [x, y] : curve.points)
      out += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2\"/>", at_x(x), at_y(y));
    return out + "</g>";
  }

  std::string title_, x_name_;
  std::vector<Curve> curves_;
  double x_max_ = 0, y_max_ = 0, cut_ = 0;
};

std::vector<std::pair<double, double>> shares_of(std::span<const double> sorted) {
  std::vector<std::pair<double, double>> points;
  for (size_t i = 0; i < sorted.size(); ++i)
    points.emplace_back(sorted[i] * 1e3, 100.0 * static_cast<double>(i + 1) / static_cast<double>(sorted.size()));
  return points;
}

std::string plots_of(const Summary& point) {
  Plot rate("output tokens a second", "s");
  std::vector<std::pair<double, double>> series;
  for (size_t i = 0; i < point.tokens_per_s.size(); ++i)
    series.emplace_back((static_cast<double>(i) + 0.5) * point.series_window_s,
                        point.tokens_per_s[i] / point.events_per_token);
  rate.add({"", "a", std::move(series)});
  rate.cut_at(point.steady.warmup_s);
  Plot first("time to first token of each request, ms", "s, when it was due");
  std::vector<std::pair<double, double>> waits;
  for (const auto& [due, wait] : point.ttft_points) waits.emplace_back(due, wait * 1e3);
  first.add({"", "a", std::move(waits), true});
  first.cut_at(point.steady.warmup_s);
  Plot answers("share of requests, %", "ms");
  answers.add({"first token", "a", shares_of(point.ttft_sorted)});
  answers.add({"whole answer", "c", shares_of(point.e2e_sorted)});
  answers.end_at(100);
  Plot gaps("share of times between tokens, %", "ms");
  gaps.add({"between events", "b", shares_of(point.gap_sorted)});
  gaps.add({"a request's mean", "d", shares_of(point.itl_sorted)});
  gaps.end_at(100);
  return "<div class=\"plots\">" + rate.svg() + first.svg() + answers.svg() + gaps.svg() + "</div>\n";
}

std::string plots_across(std::span<const Summary> points) {
  if (points.size() < 2) return {};
  Plot latency("latency against throughput, ms", "output tokens a second");
  const auto curve = [&](std::string name, std::string colour, const Distribution Summary::* which, size_t percentile) {
    Curve out{std::move(name), std::move(colour), {}};
    for (const Summary& point : points)
      if ((point.*which).samples > 0)
        out.points.emplace_back(point.output_tokens_per_s, (point.*which).percentiles[percentile].value * 1e3);
    latency.add(std::move(out));
  };
  curve("first token P50", "a", &Summary::ttft, 0);
  curve("P99", "b", &Summary::ttft, 3);
  Plot tokens("time between tokens against throughput, ms", "output tokens a second");
  Curve middle{"P50", "a", {}}, tail{"P99", "b", {}};
  for (const Summary& point : points)
    if (point.gap.samples > 0) {
      middle.points.emplace_back(point.output_tokens_per_s, point.gap.percentiles[0].value * 1e3);
      tail.points.emplace_back(point.output_tokens_per_s, point.gap.percentiles[3].value * 1e3);
    }
  tokens.add(std::move(middle));
  tokens.add(std::move(tail));
  return "<div class=\"plots\">" + latency.svg() + tokens.svg() + "</div>\n";
}

std::string cells(const Distribution& distribution) {
  std::string out;
  for (const Percentile& percentile : distribution.percentiles)
    out += distribution.samples == 0
               ? std::string("<td>-</td>")
               : fmt::format("<td>{:.2f}<br><span class=\"note\">{:.2f} to {}{:.2f}</span></td>",
                             percentile.value * 1e3, percentile.interval.low * 1e3,
                             percentile.interval.confidence < 0.949 ? "&gt;" : "", percentile.interval.high * 1e3);
  return out;
}

std::string section(const Summary& point) {
  std::string out = fmt::format(
      "<h2>{}</h2>\n<p>{} requests in {:.1f} s, {} answered, {} errors; {:.1f} output tokens/s, "
      "{:.2f} answers/s.",
      load_name(point), point.requests, point.duration_s, point.ok, point.failed, point.output_tokens_per_s,
      point.requests_per_s);
  if (point.steady.found)
    out += fmt::format(" Warm-up, left out: {:.1f} s (MSER-5), {} answers, first token after up to {:.1f} ms.",
                       point.steady.warmup_s, point.left_out, point.left_out_ttft_max * 1e3);
  else
    out += fmt::format(" <span class=\"bad\">No steady state: {}.</span>", escaped(point.steady.reason));
  if (!point.kept_plan)
    out += fmt::format(" <span class=\"bad\">The generator did not keep its plan: {}.</span>",
                       escaped(point.kept_plan_reason));
  if (point.promise.any() && point.counted > 0)
    out += fmt::format(" Promise {}: kept for {:.1f} % of the requests ({:.1f} to {:.1f}), {:.2f} a second.",
                       escaped(to_string(point.promise)),
                       100.0 * static_cast<double>(point.kept) / static_cast<double>(point.counted),
                       100 * point.kept_share.low, 100 * point.kept_share.high, point.goodput_per_s);
  out += "</p>\n<table><tr><th>ms, 95 % interval below</th><th>P50</th><th>P90</th><th>P95</th><th>P99</th></tr>\n";
  const std::pair<const char*, const Distribution*> rows[] = {{"first token", &point.ttft},
                                                              {"between tokens", &point.gap},
                                                              {"a request's mean", &point.itl},
                                                              {"whole answer", &point.e2e}};
  for (const auto& [name, distribution] : rows)
    out += fmt::format("<tr><td>{}</td>{}</tr>\n", name, cells(*distribution));
  out += "</table>\n";
  for (const auto& [kind, fault] : point.faults)
    out += fmt::format("<p class=\"bad\">{} x {}: {}</p>\n", escaped(kind), fault.count, escaped(fault.example));
  out += fmt::format(
      "<p class=\"note\">Generator: late by {:.2f} ms P50, {:.2f} ms P99, {:.2f} ms at most; {:.1f} % of a "
      "processor, {:.1f} us an event.</p>\n",
      point.late_p50_s * 1e3, point.late_p99_s * 1e3, point.late_max_s * 1e3, 100 * point.processor_share,
      point.processor_us_per_event);
  return out + plots_of(point);
}

}  // namespace

std::string html_text(const RunDescription& run, std::span<const Summary> points) {
  std::string out =
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>bolide bench serve</title>\n";
  out += kStyle;
  out += fmt::format("</head><body>\n<h1>{} at {}</h1>\n<p>{}; {}; seed {}; {}; bolide {}.</p>\n", escaped(run.model),
                     escaped(run.url), escaped(run.dialect), escaped(run.requests), run.seed, escaped(run.machine),
                     escaped(run.commit));
  for (const std::string& note : run.notes) out += fmt::format("<p class=\"note\">{}</p>\n", escaped(note));
  out += fmt::format("<pre>{}</pre>\n", escaped(table_text(points)));
  out += plots_across(points);
  for (const Summary& point : points) out += section(point);
  return out + "</body></html>\n";
}

}  // namespace bolide::load
