#include "server/metrics_aliases.h"

#include <algorithm>
#include <iterator>

#include "server/kserve_models.h"

namespace bolide::server {
namespace {

namespace prom = prometheus;

// Requests, by how they ended.
enum class Which : uint8_t { kAll, kDone, kFailed, kError };

struct Alias {
  std::string_view compat, ours, theirs;
  Which which = Which::kAll;
};
constexpr Alias kAliases[] = {
    {"vllm", "bolide_time_to_first_token_seconds", "vllm:time_to_first_token_seconds"},
    {"vllm", "bolide_request_queue_time_seconds", "vllm:request_queue_time_seconds"},
    {"vllm", "bolide_request_prefill_time_seconds", "vllm:request_prefill_time_seconds"},
    {"vllm", "bolide_request_decode_time_seconds", "vllm:request_decode_time_seconds"},
    {"vllm", "bolide_request_inference_time_seconds", "vllm:request_inference_time_seconds"},
    {"vllm", "bolide_inter_token_latency_seconds", "vllm:inter_token_latency_seconds"},
    {"vllm", "bolide_inter_token_latency_seconds", "vllm:time_per_output_token_seconds"},
    {"vllm", "bolide_request_duration_seconds", "vllm:e2e_request_latency_seconds"},
    {"vllm", "bolide_num_requests_running", "vllm:num_requests_running"},
    {"vllm", "bolide_num_requests_waiting", "vllm:num_requests_waiting"},
    {"vllm", "bolide_kv_cache_usage_ratio", "vllm:kv_cache_usage_perc"},
    {"vllm", "bolide_preemptions_total", "vllm:num_preemptions_total"},
    {"vllm", "bolide_prompt_tokens_total", "vllm:prompt_tokens_total"},
    {"vllm", "bolide_generation_tokens_total", "vllm:generation_tokens_total"},
    {"vllm", "bolide_requests_total", "vllm:request_success_total"},  // where those that failed have a reason, too
    {"vllm", "bolide_prefix_cache_queries_total", "vllm:prefix_cache_queries_total"},
    {"vllm", "bolide_prefix_cache_hits_total", "vllm:prefix_cache_hits_total"},
    {"vllm", "bolide_request_prompt_tokens", "vllm:request_prompt_tokens"},
    {"vllm", "bolide_request_generation_tokens", "vllm:request_generation_tokens"},
    {"trtllm", "bolide_request_duration_seconds", "trtllm_e2e_request_latency_seconds"},
    {"trtllm", "bolide_request_duration_seconds", "trtllm_serve_request_duration_seconds"},
    {"trtllm", "bolide_time_to_first_token_seconds", "trtllm_time_to_first_token_seconds"},
    {"trtllm", "bolide_request_queue_time_seconds", "trtllm_request_queue_time_seconds"},
    {"trtllm", "bolide_request_prefill_time_seconds", "trtllm_request_prefill_time_seconds"},
    {"trtllm", "bolide_request_decode_time_seconds", "trtllm_request_decode_time_seconds"},
    {"trtllm", "bolide_request_inference_time_seconds", "trtllm_request_inference_time_seconds"},
    {"trtllm", "bolide_inter_token_latency_seconds", "trtllm_time_per_output_token_seconds"},
    {"trtllm", "bolide_num_requests_running", "trtllm_num_requests_running"},
    {"trtllm", "bolide_num_requests_waiting", "trtllm_num_requests_waiting"},
    {"trtllm", "bolide_num_requests_waiting", "trtllm_serve_num_requests_in_queue"},
    {"trtllm", "bolide_requests_total", "trtllm_serve_request_count"},
    {"trtllm", "bolide_requests_per_second", "trtllm_serve_qps"},
    {"trtllm", "bolide_requests_total", "trtllm_request_success_total", Which::kDone},
    {"trtllm", "bolide_requests_total", "trtllm_request_error_total", Which::kError},
    {"trtllm", "bolide_prompt_tokens_total", "trtllm_prompt_tokens_total"},
    {"trtllm", "bolide_prompt_tokens_cached_total", "trtllm_prompt_cached_tokens_total"},
    {"trtllm", "bolide_generation_tokens_total", "trtllm_generation_tokens_total"},
    {"trtllm", "bolide_kv_cache_usage_ratio", "trtllm_kv_cache_utilization"},
    {"trtllm", "bolide_kv_cache_blocks", "trtllm_kv_cache_max_blocks"},
    {"trtllm", "bolide_gpu_memory_used_bytes", "trtllm_gpu_memory_usage_bytes"},
    {"trtllm", "bolide_gpu_memory_used_bytes", "nvidia_smi_memory_used"},
    {"triton", "bolide_num_requests_waiting", "nv_inference_pending_request_count"},
    {"triton", "bolide_requests_total", "nv_inference_request_success", Which::kDone},
    {"triton", "bolide_requests_total", "nv_inference_request_failure", Which::kFailed},
    {"triton", "bolide_gpu_memory_used_bytes", "nv_gpu_memory_used_bytes"},
    {"triton", "bolide_gpu_memory_total_bytes", "nv_gpu_memory_total_bytes"},
};

constexpr const char* kReason = "finished_reason";

bool is_of(const prom::ClientMetric& metric, Which which) {
  if (which == Which::kAll) return true;
  const auto reason =
      std::find_if(metric.label.begin(), metric.label.end(), [](const auto& l) { return l.name == kReason; });
  if (reason == metric.label.end()) return true;
  if (which == Which::kError) return reason->value == "error";
  const bool failed = reason->value == "error" || reason->value == "cancelled";
  return failed == (which == Which::kFailed);
}

// Triton calls a model by name and version, and has one count of successes.
void label_as_triton(std::vector<prom::ClientMetric::Label>& labels, Which which) {
  bool of_model = false;
  std::vector<prom::ClientMetric::Label> theirs;
  for (prom::ClientMetric::Label& label : labels) {
    of_model = of_model || label.name == "model_name";
    if (label.name == "model_name") label.name = "model";
    if (label.name == kReason && which == Which::kDone) continue;
    if (label.name == kReason) label = {"reason", label.value == "cancelled" ? "CANCELED" : "OTHER"};
    theirs.push_back(std::move(label));
  }
  if (of_model) theirs.push_back({"version", std::string(kModelVersion)});
  labels = std::move(theirs);
}

void add_counts_of_one_label(std::vector<prom::ClientMetric>& metrics) {
  std::vector<prom::ClientMetric> sums;
  for (prom::ClientMetric& metric : metrics) {
    const auto same =
        std::find_if(sums.begin(), sums.end(), [&](const auto& other) { return other.label == metric.label; });
    if (same == sums.end())
      sums.push_back(std::move(metric));
    else
      same->counter.value += metric.counter.value;
  }
  metrics = std::move(sums);
}

}  // namespace

void add_aliases(std::string_view compat, std::vector<prom::MetricFamily>& families) {
  std::vector<prom::MetricFamily> added;
  for (const Alias& alias : kAliases) {
    if (alias.compat != compat) continue;
    const auto ours =
        std::find_if(families.begin(), families.end(), [&](const auto& f) { return f.name == alias.ours; });
    if (ours == families.end()) continue;
    prom::MetricFamily family{std::string(alias.theirs), ours->help, ours->type, {}};
    for (const prom::ClientMetric& metric : ours->metric)
      if (is_of(metric, alias.which)) family.metric.push_back(metric);
    if (compat == "triton") {
      for (prom::ClientMetric& metric : family.metric) label_as_triton(metric.label, alias.which);
      if (family.type == prom::MetricType::Counter) add_counts_of_one_label(family.metric);
    }
    added.push_back(std::move(family));
  }
  std::move(added.begin(), added.end(), std::back_inserter(families));
}

void add_triton_totals(const std::map<std::string, ModelTotals>& totals, std::vector<prom::MetricFamily>& families) {
  struct Sum {
    const char *name, *help;
    uint64_t (*of)(const ModelTotals&);
  };
  constexpr Sum kSums[] = {
      {"nv_inference_count", "Requests that were answered", [](const ModelTotals& t) { return t.success.count; }},
      {"nv_inference_exec_count", "Runs: as many as requests", [](const ModelTotals& t) { return t.success.count; }},
      {"nv_inference_request_duration_us", "From requests to their answers, microseconds",
       [](const ModelTotals& t) { return t.success.us; }},
      {"nv_inference_queue_duration_us", "Requests waited, microseconds",
       [](const ModelTotals& t) { return t.queue.us; }},
      {"nv_inference_compute_input_duration_us", "Inputs were read, microseconds",
       [](const ModelTotals& t) { return t.input.us; }},
      {"nv_inference_compute_infer_duration_us", "Runs and generation took, microseconds",
       [](const ModelTotals& t) { return t.run.us; }},
      {"nv_inference_compute_output_duration_us", "Outputs were written, microseconds",
       [](const ModelTotals& t) { return t.output.us; }},
  };
  for (const Sum& sum : kSums) {
    prom::MetricFamily family{sum.name, sum.help, prom::MetricType::Counter, {}};
    for (const auto& [model, total] : totals) {
      prom::ClientMetric& metric = family.metric.emplace_back();
      metric.label = {{"model", model}, {"version", std::string(kModelVersion)}};
      metric.counter.value = static_cast<double>(sum.of(total));
    }
    if (!family.metric.empty()) families.push_back(std::move(family));
  }
}

}  // namespace bolide::server
