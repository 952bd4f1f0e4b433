#include "server/metrics.h"

#include <fmt/format.h>
#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <mutex>
#include <vector>

#include "base/clock.h"
#include "server/metrics_aliases.h"
#include "server/rate_window.h"
#include "server/served_network.h"

namespace bolide::server {
namespace {

namespace prom = prometheus;
using Buckets = prom::Histogram::BucketBoundaries;

// vLLM's edges, so that its dashboards fit, and finer ones below: small models answer within a millisecond.
const Buckets kFirstToken = {.001, .005, .01, .02, .04, .06, .08, .1, .25, .5,  .75,
                             1,    2.5,  5,   7.5, 10,  20,  40,  80, 160, 640, 2560};
const Buckets kQueue = {.0001, .001, .005, .01, .025, .05, .1, .3, .5, .8,  1,   1.5, 2,
                        2.5,   5,    10,   15,  20,   30,  40, 50, 60, 120, 240, 480, 960};
const Buckets kInterToken = {.0005, .001, .0025, .005, .01, .025, .05, .075, .1, .15, .2, .3,
                             .4,    .5,   .75,   1,    2.5, 5,    7.5, 10,   20, 40,  80};
const Buckets kRequest = {.0005, .001, .0025, .005, .01, .025, .05, .1, .3, .5,  .8,  1,   1.5, 2,
                          2.5,   5,    10,    15,   20,  30,   40,  50, 60, 120, 240, 480, 960, 1920};
const Buckets kTokens = {1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10'000, 20'000, 50'000, 100'000};

// A counter that goes with one that an engine keeps, which starts anew when the model is loaded again.
class Follower {
 public:
  explicit Follower(prom::Counter& counter) : counter_(&counter) {}
  void follow(double value) {
    if (value < seen_) seen_ = 0;
    counter_->Increment(value - seen_);
    seen_ = value;
  }

 private:
  prom::Counter* counter_;
  double seen_ = 0;
};

// What one model's engine is at, as it was read last.
struct ModelSeries {
  prom::Histogram *queue, *first_token, *inter_token, *duration, *prefill, *decode, *inference, *prompt_tokens,
      *generation_tokens;
  prom::Counter *prompt_total, *generation_total, *cached_total;
  prom::Gauge *running, *waiting, *waiting_tokens, *kv_usage, *kv_blocks, *ready, *rate;
  Follower preemptions, prefix_asked, prefix_found, steps, step_tokens, busy;
};

void raise(prom::Counter& counter, double value) {
  if (const double more = value - counter.Value(); more > 0) counter.Increment(more);
}

class Families {
 public:
  prom::Family<prom::Histogram>& histogram(const char* name, const char* help) {
    return prom::BuildHistogram().Name(name).Help(help).Register(registry_);
  }
  prom::Family<prom::Counter>& counter(const char* name, const char* help) {
    return prom::BuildCounter().Name(name).Help(help).Register(registry_);
  }
  prom::Family<prom::Gauge>& gauge(const char* name, const char* help) {
    return prom::BuildGauge().Name(name).Help(help).Register(registry_);
  }
  std::vector<prom::MetricFamily> collect() const { return registry_.Collect(); }

 private:
  prom::Registry registry_;
};

double resident_bytes() {
  std::ifstream file("/proc/self/statm");  // whose size is said to be 0, which read_file would believe
  double pages = 0, resident_pages = 0;
  file >> pages >> resident_pages;
  return resident_pages * static_cast<double>(::sysconf(_SC_PAGESIZE));
}

double cpu_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// Built when it is asked for: a GPU that is not there, or does not answer, has no series.
std::vector<prom::MetricFamily> device_families(const std::vector<DeviceMemory>& devices) {
  prom::MetricFamily used{
      "bolide_gpu_memory_used_bytes", "Memory of the GPU in use, by all processes, bytes", prom::MetricType::Gauge, {}};
  prom::MetricFamily total{"bolide_gpu_memory_total_bytes", "Memory of the GPU, bytes", prom::MetricType::Gauge, {}};
  for (const DeviceMemory& device : devices)
    for (auto& [family, bytes] : {std::pair(&used, device.used_bytes), std::pair(&total, device.total_bytes)}) {
      prom::ClientMetric& metric = family->metric.emplace_back();
      metric.label = {{"gpu", fmt::format("{}", device.index)}, {"name", device.name}};
      metric.gauge.value = static_cast<double>(bytes);
    }
  if (devices.empty()) return {};
  return {std::move(used), std::move(total)};
}

void add(ModelTotals& totals, const RunFigures& figures) {
  const auto count = [](ModelTotals::Duration& duration, int64_t us) {
    ++duration.count;
    duration.us += static_cast<uint64_t>(us);
  };
  totals.last_ms = std::max(totals.last_ms, unix_ms() - figures.all_us / 1000);
  const bool failed = figures.reason == "error" || figures.reason == "cancelled";
  count(failed ? totals.fail : totals.success, figures.all_us);
  if (failed) return;
  count(totals.queue, figures.queue_us);
  count(totals.input, figures.input_us);
  count(totals.run, figures.run_us);
  count(totals.output, figures.output_us);
}

class PrometheusMetrics final : public Metrics {
 public:
  explicit PrometheusMetrics(std::string_view compat) : compat_(compat) {
    connections_ = &open_.Add({});
    accepted_ = &accepted_family_.Add({});
    resident_ = &resident_family_.Add({});
    cpu_ = &cpu_family_.Add({});
    start_family_.Add({}).Set(static_cast<double>(unix_ms()) * 1e-3);
  }

  std::shared_ptr<ModelMetrics> of_model(const std::string& name) override;
  void refused(int status) override { refused_.Add({{"status", fmt::format("{}", status)}}).Increment(); }
  std::string text(const ModelRegistry& models, const HttpStats& http) override;

  ModelTotals totals(const std::string& name) override {
    const std::lock_guard lock(mutex_);
    return totals_[name];
  }

  // `figures`: with reading, waiting and so on, as far as they are known.
  void ended(const std::string& model, const RunFigures& figures) {
    requests_.Add({{"model_name", model}, {"finished_reason", std::string(figures.reason)}}).Increment();
    const std::lock_guard lock(mutex_);
    add(totals_[model], figures);
    rates_[model].add(steady_us());
  }

 private:
  ModelSeries& series_of(const std::string& name);
  void read_engine(ModelSeries& series, const EngineStats& stats);

  const std::string compat_;
  Families f_;
  prom::Family<prom::Histogram>&queue_ =
      f_.histogram("bolide_request_queue_time_seconds", "From a request to its first step"),
  &first_token_ = f_.histogram("bolide_time_to_first_token_seconds", "From a request to its first token"),
  &inter_token_ = f_.histogram("bolide_inter_token_latency_seconds", "Between two tokens of an answer"),
  &duration_ = f_.histogram("bolide_request_duration_seconds", "From a request to the end of its answers"),
  &prefill_ = f_.histogram("bolide_request_prefill_time_seconds", "From a request's first step to its first token"),
  &decode_ = f_.histogram("bolide_request_decode_time_seconds", "From a request's first token to its last"),
  &inference_ = f_.histogram("bolide_request_inference_time_seconds", "From a request's first step to its last token"),
  &prompt_ = f_.histogram("bolide_request_prompt_tokens", "Tokens of prompts"),
  &generation_ = f_.histogram("bolide_request_generation_tokens", "Tokens of answers, all of a request");
  prom::Family<prom::Counter>&requests_ = f_.counter("bolide_requests_total", "Requests that ended, by why"),
  &refused_ = f_.counter("bolide_refused_requests_total", "Requests that no engine saw, by status"),
  &prompt_total_ = f_.counter("bolide_prompt_tokens_total", "Tokens of prompts"),
  &generation_total_ = f_.counter("bolide_generation_tokens_total", "Tokens of answers"),
  &cached_total_ = f_.counter("bolide_prompt_tokens_cached_total", "Tokens of prompts that were in the cache"),
  &preemptions_ = f_.counter("bolide_preemptions_total", "Answers that had to give up their memory"),
  &prefix_asked_ = f_.counter("bolide_prefix_cache_queries_total", "Tokens looked for in the prefix cache"),
  &prefix_found_ = f_.counter("bolide_prefix_cache_hits_total", "Tokens found there"),
  &steps_ = f_.counter("bolide_engine_steps_total", "Steps of the engine"),
  &step_tokens_ = f_.counter("bolide_engine_tokens_total", "Tokens of all steps: prompts and answers"),
  &busy_ = f_.counter("bolide_engine_busy_seconds_total", "Time in steps"),
  &accepted_family_ = f_.counter("bolide_connections_total", "Connections that were accepted"),
  &answers_ = f_.counter("bolide_http_responses_total", "Answers by status, the server's own refusals among them"),
  &cpu_family_ = f_.counter("process_cpu_seconds_total", "Processor time of this process");
  prom::Family<prom::Gauge>&rate_ =
      f_.gauge("bolide_requests_per_second", "Requests that ended within the last 10 s, a second"),
  &running_ = f_.gauge("bolide_num_requests_running", "Answers that are being made"),
  &waiting_ = f_.gauge("bolide_num_requests_waiting", "Answers that wait"),
  &waiting_tokens_ = f_.gauge("bolide_waiting_tokens", "Tokens of prompts of those that wait"),
  &kv_usage_ = f_.gauge("bolide_kv_cache_usage_ratio", "Share of the KV cache's blocks in use"),
  &kv_blocks_ = f_.gauge("bolide_kv_cache_blocks", "Blocks of the KV cache"),
  &ready_ = f_.gauge("bolide_ready", "1: the model's engine takes requests"),
  &open_ = f_.gauge("bolide_connections", "Connections that are open"),
  &start_family_ = f_.gauge("process_start_time_seconds", "When this process was started, seconds since 1970"),
  &resident_family_ = f_.gauge("process_resident_memory_bytes", "Memory of this process");
  prom::Gauge *connections_, *resident_;
  prom::Counter *accepted_, *cpu_;

  std::mutex mutex_;  // guards what follows
  std::map<std::string, ModelSeries> series_;
  std::map<std::string, ModelTotals> totals_;
  std::map<std::string, RateWindow> rates_;
};

class Of final : public ModelMetrics {
 public:
  Of(PrometheusMetrics& all, std::string model, const ModelSeries& series)
      : all_(all), model_(std::move(model)), series_(series) {}
  void queued(double seconds) override { series_.queue->Observe(seconds); }
  void first_token(double seconds) override { series_.first_token->Observe(seconds); }
  void inter_token(double seconds) override { series_.inter_token->Observe(seconds); }
  void request_ended(const RequestFigures& f) override {
    series_.duration->Observe(f.seconds);
    series_.prompt_tokens->Observe(static_cast<double>(f.prompt_tokens));
    series_.generation_tokens->Observe(static_cast<double>(f.completion_tokens));
    series_.prompt_total->Increment(static_cast<double>(f.prompt_tokens));
    series_.generation_total->Increment(static_cast<double>(f.completion_tokens));
    series_.cached_total->Increment(static_cast<double>(f.cached_tokens));
    if (f.prefill_seconds >= 0) {
      series_.prefill->Observe(f.prefill_seconds);
      series_.decode->Observe(f.decode_seconds);
      series_.inference->Observe(f.prefill_seconds + f.decode_seconds);
    }
    const auto us = static_cast<int64_t>(f.seconds * 1e6);
    all_.ended(model_, {.reason = f.reason, .all_us = us, .run_us = us});
  }
  void run_ended(const RunFigures& f) override {
    series_.duration->Observe(static_cast<double>(f.all_us) * 1e-6);
    all_.ended(model_, f);
  }

 private:
  PrometheusMetrics& all_;
  std::string model_;
  ModelSeries series_;
};

ModelSeries& PrometheusMetrics::series_of(const std::string& name) {
  const auto it = series_.find(name);
  if (it != series_.end()) return it->second;
  const prom::Labels labels = {{"model_name", name}};
  return series_
      .emplace(name, ModelSeries{&queue_.Add(labels, kQueue),
                                 &first_token_.Add(labels, kFirstToken),
                                 &inter_token_.Add(labels, kInterToken),
                                 &duration_.Add(labels, kRequest),
                                 &prefill_.Add(labels, kRequest),
                                 &decode_.Add(labels, kRequest),
                                 &inference_.Add(labels, kRequest),
                                 &prompt_.Add(labels, kTokens),
                                 &generation_.Add(labels, kTokens),
                                 &prompt_total_.Add(labels),
                                 &generation_total_.Add(labels),
                                 &cached_total_.Add(labels),
                                 &running_.Add(labels),
                                 &waiting_.Add(labels),
                                 &waiting_tokens_.Add(labels),
                                 &kv_usage_.Add(labels),
                                 &kv_blocks_.Add(labels),
                                 &ready_.Add(labels),
                                 &rate_.Add(labels),
                                 Follower(preemptions_.Add(labels)),
                                 Follower(prefix_asked_.Add(labels)),
                                 Follower(prefix_found_.Add(labels)),
                                 Follower(steps_.Add(labels)),
                                 Follower(step_tokens_.Add(labels)),
                                 Follower(busy_.Add(labels))})
      .first->second;
}

std::shared_ptr<ModelMetrics> PrometheusMetrics::of_model(const std::string& name) {
  const std::lock_guard lock(mutex_);
  return std::make_shared<Of>(*this, name, series_of(name));
}

void PrometheusMetrics::read_engine(ModelSeries& s, const EngineStats& stats) {
  const SchedulerStats& now = stats.scheduler;
  s.ready->Set(stats.state == EngineState::kReady && !stats.stalled() ? 1 : 0);
  s.running->Set(now.running);
  s.waiting->Set(stats.waiting + now.preempted);
  s.waiting_tokens->Set(static_cast<double>(stats.waiting_tokens));
  s.kv_usage->Set(now.blocks > 0 ? static_cast<double>(now.blocks_used) / now.blocks : 0);
  s.kv_blocks->Set(now.blocks);
  s.preemptions.follow(static_cast<double>(now.preemptions));
  s.prefix_asked.follow(static_cast<double>(now.prefix_tokens_asked));
  s.prefix_found.follow(static_cast<double>(now.prefix_tokens_found));
  s.steps.follow(static_cast<double>(stats.steps));
  s.step_tokens.follow(static_cast<double>(stats.tokens));
  s.busy.follow(static_cast<double>(stats.busy_us) * 1e-6);
}

std::string PrometheusMetrics::text(const ModelRegistry& models, const HttpStats& http) {
  const std::vector<DeviceMemory> devices = models.device_memory();
  const std::lock_guard lock(mutex_);
  // A model that was taken out is at nothing; one that is not loaded likewise.
  for (const auto& [name, s] : series_)
    for (prom::Gauge* gauge : {s.running, s.waiting, s.waiting_tokens, s.kv_usage, s.kv_blocks, s.ready, s.rate})
      gauge->Set(0);
  for (const ModelEntry& entry : models.list()) {
    ModelSeries& s = series_of(entry.name);
    if (const auto model = models.find(entry.name)) {
      read_engine(s, model->engine->stats());
    } else if (const auto network = models.find_network(entry.name)) {
      const NetworkQueue::Stats now = network->queue->stats();
      s.ready->Set(1);
      s.running->Set(static_cast<double>(now.running));
      s.waiting->Set(static_cast<double>(now.waiting));
    }
  }
  const int64_t now = steady_us();
  for (auto& [name, rate] : rates_) series_of(name).rate->Set(rate.per_second(now));
  connections_->Set(static_cast<double>(http.connections));
  raise(*accepted_, static_cast<double>(http.accepted));
  for (const auto& [status, count] : http.answers)
    raise(answers_.Add({{"status", fmt::format("{}", status)}}), static_cast<double>(count));
  resident_->Set(resident_bytes());
  raise(*cpu_, cpu_seconds());
  std::vector<prom::MetricFamily> families = f_.collect();
  for (prom::MetricFamily& family : device_families(devices)) families.push_back(std::move(family));
  add_aliases(compat_, families);
  if (compat_ == "triton") add_triton_totals(totals_, families);
  return prom::TextSerializer().Serialize(families);
}

}  // namespace

Result<std::unique_ptr<Metrics>> Metrics::make(std::string_view compat) {
  if (!compat.empty() && compat != "vllm" && compat != "trtllm" && compat != "triton")
    return error(Code::kInvalid, fmt::format("--metrics-compat {:.60}: expected vllm, trtllm or triton", compat));
  return std::unique_ptr<Metrics>(std::make_unique<PrometheusMetrics>(compat));
}

}  // namespace bolide::server
