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
#include <chrono>
#include <fstream>
#include <map>
#include <mutex>
#include <vector>

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

// Names that others give to what we count.
struct Alias {
  std::string_view compat, ours, theirs;
};
constexpr Alias kAliases[] = {
    {"vllm", "bolide_time_to_first_token_seconds", "vllm:time_to_first_token_seconds"},
    {"vllm", "bolide_request_queue_time_seconds", "vllm:request_queue_time_seconds"},
    {"vllm", "bolide_inter_token_latency_seconds", "vllm:inter_token_latency_seconds"},
    {"vllm", "bolide_inter_token_latency_seconds", "vllm:time_per_output_token_seconds"},
    {"vllm", "bolide_request_duration_seconds", "vllm:e2e_request_latency_seconds"},
    {"vllm", "bolide_num_requests_running", "vllm:num_requests_running"},
    {"vllm", "bolide_num_requests_waiting", "vllm:num_requests_waiting"},
    {"vllm", "bolide_kv_cache_usage_ratio", "vllm:kv_cache_usage_perc"},
    {"vllm", "bolide_preemptions_total", "vllm:num_preemptions_total"},
    {"vllm", "bolide_prompt_tokens_total", "vllm:prompt_tokens_total"},
    {"vllm", "bolide_generation_tokens_total", "vllm:generation_tokens_total"},
    {"vllm", "bolide_requests_total", "vllm:request_success_total"},
    {"vllm", "bolide_prefix_cache_queries_total", "vllm:prefix_cache_queries_total"},
    {"vllm", "bolide_prefix_cache_hits_total", "vllm:prefix_cache_hits_total"},
    {"vllm", "bolide_request_prompt_tokens", "vllm:request_prompt_tokens"},
    {"vllm", "bolide_request_generation_tokens", "vllm:request_generation_tokens"},
    {"trtllm", "bolide_request_duration_seconds", "trtllm_e2e_request_latency_seconds"},
    {"trtllm", "bolide_request_duration_seconds", "trtllm_serve_request_duration_seconds"},
    {"trtllm", "bolide_time_to_first_token_seconds", "trtllm_time_to_first_token_seconds"},
    {"trtllm", "bolide_request_queue_time_seconds", "trtllm_request_queue_time_seconds"},
    {"trtllm", "bolide_inter_token_latency_seconds", "trtllm_time_per_output_token_seconds"},
    {"trtllm", "bolide_num_requests_running", "trtllm_num_requests_running"},
    {"trtllm", "bolide_num_requests_waiting", "trtllm_num_requests_waiting"},
    {"trtllm", "bolide_num_requests_waiting", "trtllm_serve_num_requests_in_queue"},
    {"trtllm", "bolide_requests_total", "trtllm_serve_request_count"},
    {"trtllm", "bolide_requests_total", "trtllm_request_success_total"},
    {"trtllm", "bolide_prompt_tokens_total", "trtllm_prompt_tokens_total"},
    {"trtllm", "bolide_generation_tokens_total", "trtllm_generation_tokens_total"},
    {"trtllm", "bolide_kv_cache_usage_ratio", "trtllm_kv_cache_utilization"},
    {"triton", "bolide_num_requests_waiting", "nv_inference_pending_request_count"},
    {"triton", "bolide_requests_total", "nv_inference_request_success"},
};

// What one model's engine is at, as it was read last.
struct ModelSeries {
  prom::Histogram *queue, *first_token, *inter_token, *duration, *prompt_tokens, *generation_tokens;
  prom::Counter *prompt_total, *generation_total, *cached_total;
  prom::Gauge *running, *waiting, *waiting_tokens, *kv_usage, *kv_blocks, *ready;
  prom::Counter *preemptions, *prefix_asked, *prefix_found, *steps, *step_tokens, *busy;
};

// Counters of engines only grow, but start anew when a model is loaded again.
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

void add(ModelTotals& totals, const RunFigures& figures) {
  using std::chrono::milliseconds;
  const auto now = std::chrono::duration_cast<milliseconds>(std::chrono::system_clock::now().time_since_epoch());
  const auto count = [](ModelTotals::Duration& duration, int64_t us) {
    ++duration.count;
    duration.us += static_cast<uint64_t>(us);
  };
  totals.last_ms = std::max(totals.last_ms, now.count() - figures.all_us / 1000);
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
  }

 private:
  ModelSeries& series_of(const std::string& name);

  const std::string compat_;
  Families f_;
  prom::Family<prom::Histogram>&queue_ =
      f_.histogram("bolide_request_queue_time_seconds", "From a request to its first step"),
  &first_token_ = f_.histogram("bolide_time_to_first_token_seconds", "From a request to its first token"),
  &inter_token_ = f_.histogram("bolide_inter_token_latency_seconds", "Between two tokens of an answer"),
  &duration_ = f_.histogram("bolide_request_duration_seconds", "From a request to the end of its answers"),
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
  prom::Family<prom::Gauge>&running_ = f_.gauge("bolide_num_requests_running", "Answers that are being made"),
  &waiting_ = f_.gauge("bolide_num_requests_waiting", "Answers that wait"),
  &waiting_tokens_ = f_.gauge("bolide_waiting_tokens", "Tokens of prompts of those that wait"),
  &kv_usage_ = f_.gauge("bolide_kv_cache_usage_ratio", "Share of the KV cache's blocks in use"),
  &kv_blocks_ = f_.gauge("bolide_kv_cache_blocks", "Blocks of the KV cache"),
  &ready_ = f_.gauge("bolide_ready", "1: the model's engine takes requests"),
  &open_ = f_.gauge("bolide_connections", "Connections that are open"),
  &resident_family_ = f_.gauge("process_resident_memory_bytes", "Memory of this process");
  prom::Gauge *connections_, *resident_;
  prom::Counter *accepted_, *cpu_;

  std::mutex mutex_;  // guards what follows
  std::map<std::string, ModelSeries> series_;
  std::map<std::string, ModelTotals> totals_;
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
                                 &preemptions_.Add(labels),
                                 &prefix_asked_.Add(labels),
                                 &prefix_found_.Add(labels),
                                 &steps_.Add(labels),
                                 &step_tokens_.Add(labels),
                                 &busy_.Add(labels)})
      .first->second;
}

std::shared_ptr<ModelMetrics> PrometheusMetrics::of_model(const std::string& name) {
  const std::lock_guard lock(mutex_);
  return std::make_shared<Of>(*this, name, series_of(name));
}

std::string PrometheusMetrics::text(const ModelRegistry& models, const HttpStats& http) {
  const std::lock_guard lock(mutex_);
  for (const ModelEntry& entry : models.list()) {
    const auto model = models.find(entry.name);
    const ModelSeries& s = series_of(entry.name);
    if (model == nullptr) {
      const auto network = models.find_network(entry.name);
      s.ready->Set(network != nullptr ? 1 : 0);
      const NetworkQueue::Stats now = network != nullptr ? network->queue->stats() : NetworkQueue::Stats();
      s.running->Set(static_cast<double>(now.running));
      s.waiting->Set(static_cast<double>(now.waiting));
      continue;
    }
    const EngineStats stats = model->engine->stats();
    const SchedulerStats& now = stats.scheduler;
    s.ready->Set(stats.state == EngineState::kReady && !stats.stalled() ? 1 : 0);
    s.running->Set(now.running);
    s.waiting->Set(now.waiting + stats.queued);
    s.waiting_tokens->Set(static_cast<double>(now.waiting_tokens));
    s.kv_usage->Set(now.blocks > 0 ? static_cast<double>(now.blocks_used) / now.blocks : 0);
    s.kv_blocks->Set(now.blocks);
    raise(*s.preemptions, static_cast<double>(now.preemptions));
    raise(*s.prefix_asked, static_cast<double>(now.prefix_tokens_asked));
    raise(*s.prefix_found, static_cast<double>(now.prefix_tokens_found));
    raise(*s.steps, static_cast<double>(stats.steps));
    raise(*s.step_tokens, static_cast<double>(stats.tokens));
    raise(*s.busy, static_cast<double>(stats.busy_us) * 1e-6);
  }
  connections_->Set(static_cast<double>(http.connections));
  raise(*accepted_, static_cast<double>(http.accepted));
  for (const auto& [status, count] : http.answers)
    raise(answers_.Add({{"status", fmt::format("{}", status)}}), static_cast<double>(count));
  resident_->Set(resident_bytes());
  raise(*cpu_, cpu_seconds());
  std::vector<prom::MetricFamily> families = f_.collect();
  const size_t ours = families.size();
  for (const Alias& alias : kAliases)
    for (size_t i = 0; alias.compat == compat_ && i < ours; ++i)
      if (families[i].name == alias.ours) {
        families.push_back(families[i]);
        families.back().name = alias.theirs;
      }
  return prom::TextSerializer().Serialize(families);
}

}  // namespace

Result<std::unique_ptr<Metrics>> Metrics::make(std::string_view compat) {
  if (!compat.empty() && compat != "vllm" && compat != "trtllm" && compat != "triton")
    return error(Code::kInvalid, fmt::format("--metrics-compat {:.60}: expected vllm, trtllm or triton", compat));
  return std::unique_ptr<Metrics>(std::make_unique<PrometheusMetrics>(compat));
}

}  // namespace bolide::server
