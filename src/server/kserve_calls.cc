#include "server/kserve_calls.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "server/generation.h"
#include "server/kserve_tensors.h"
#include "server/prompts.h"
#include "server/random_id.h"

namespace bolide::server {
namespace {

constexpr size_t kLongBody = 64 * 1024;  // bodies beyond this are read aside
constexpr int32_t kTokens = 20;          // of an answer, if a request does not say: the protocol's default

// Until when a request may take: what the server allows, what the request says, and until when its client waits.
int64_t deadline_of(const KserveCall& call, int64_t most_us, std::optional<int64_t> wish_us) {
  const int64_t deadline = call.begun_us + std::min(most_us, wish_us.value_or(most_us));
  const auto client = call.exchange->request().deadline;
  if (!client) return deadline;
  using std::chrono::microseconds;
  return std::min<int64_t>(deadline, std::chrono::duration_cast<microseconds>(client->time_since_epoch()).count());
}

size_t bytes_of(const std::vector<AnyValue>& values) {
  size_t bytes = 0;
  for (const AnyValue& value : values) bytes += raw_bytes(*value.tensor());
  return bytes;
}

}  // namespace

KserveCalls::KserveCalls(ModelRegistry& registry, Metrics& metrics, ApiKeys* keys, KserveOptions options,
                         RequestLog& log)
    : registry_(registry),
      metrics_(metrics),
      keys_(keys),
      options_(std::move(options)),
      log_(log),
      changes_(1, 16),
      text_(options_.text_threads) {}

void KserveCalls::refuse(const KserveCall& call, HttpResponse response) {
  metrics_.refused(response.status);
  call.exchange->respond(std::move(response));
}

void KserveCalls::with_body(const KserveCall& call, const std::function<void()>& work) {
  if (call.exchange->request().body.size() <= kLongBody) return work();
  text_.add(call.exchange, work, [this, call](const Error& failure) { refuse(call, failure); });
}

Error KserveCalls::not_there(const std::string& model) const {
  for (const ModelEntry& entry : registry_.list())
    if (entry.name == model)
      return error(Code::kUnavailable, fmt::format("model {} is {}: {}", model, entry.state, entry.reason));
  return error(Code::kNotFound, fmt::format("there is no model {:.200}", model));
}

Result<ModelOutline> KserveCalls::outline(const std::string& model) const {
  if (const auto language = registry_.find(model)) return outline_of(*language);
  if (const auto network = registry_.find_network(model)) return outline_of(*network);
  return not_there(model);
}

Result<> KserveCalls::check_ready(const std::string& model) const {
  if (const auto outline = this->outline(model); !outline) return outline.error();
  const auto language = registry_.find(model);
  if (language == nullptr) return {};
  const EngineStats stats = language->engine->stats();
  if (stats.state == EngineState::kReady && !stats.stalled()) return {};
  return error(Code::kUnavailable, fmt::format("the engine of {} is {} {}", model,
                                               stats.stalled() ? "stalled" : to_string(stats.state), stats.failure));
}

Result<std::vector<NamedTotals>> KserveCalls::totals(const std::string& model) const {
  if (const auto outline = this->outline(model); !outline) return outline.error();
  return std::vector<NamedTotals>{{model, metrics_.totals(model)}};
}

std::vector<NamedTotals> KserveCalls::all_totals() const {
  std::vector<NamedTotals> all;
  for (const ModelEntry& entry : index(true)) all.push_back({entry.name, metrics_.totals(entry.name)});
  return all;
}

std::vector<ModelEntry> KserveCalls::index(bool ready_alone) const {
  std::vector<ModelEntry> all = registry_.list();
  if (ready_alone) std::erase_if(all, [](const ModelEntry& entry) { return entry.state != "READY"; });
  return all;
}

void KserveCalls::change(const KserveCall& call, bool load, HttpResponse done) {
  if (!options_.model_control)
    return refuse(call, 403, "models are not loaded and unloaded by requests (--no-model-control)");
  const auto work = [this, call, load, done = std::move(done)] {
    const auto changed = load ? registry_.load(call.model) : registry_.unload(call.model);
    log::info(load ? "model loaded by a request" : "model unloaded by a request",
              {{"model", std::string_view(call.model)},
               {"client", std::string_view(call.exchange->request().client)},
               {"error", std::string_view(changed ? "" : changed.error().text)}});
    if (!changed) return refuse(call, changed.error());
    call.exchange->respond(done);
  };
  if (!changes_.add(work)) refuse(call, error(Code::kOverloaded, "too many models wait to be loaded or unloaded"));
}

void KserveCalls::infer(const KserveCall& call, const Read& read) {
  if (const auto network = registry_.find_network(call.model)) return infer_network(call, network, read);
  if (const auto model = registry_.find(call.model)) return infer_text(call, model, read);
  refuse(call, not_there(call.model));
}

// One request to a network, on its way through the queue.
struct KserveCalls::Run {
  KserveCall call;
  std::shared_ptr<const ServedNetwork> network;
  std::string id;
  std::vector<ChosenOutput> outputs;
  std::shared_ptr<ModelMetrics> metrics;
  std::shared_ptr<void> while_it_runs;
  int64_t input_us = 0;

  Result<HttpResponse> response(const NetworkQueue::Values& values) const {
    std::vector<OutputTensor> tensors;
    for (const ChosenOutput& output : outputs) {
      const std::string& name = network->outputs[output.place].name;
      const Tensor* tensor = values[output.place].tensor();
      if (tensor == nullptr)
        return error(Code::kUnsupported, fmt::format("output {:.100}: is no tensor this time", name));
      tensors.push_back({name, tensor, output.raw});
    }
    return call.dialect->tensors({call.model, id}, tensors);
  }

  // On a thread of the queue.
  void end(const Result<NetworkQueue::Values>& values, const NetworkQueue::Times& times) {
    const int64_t ended = steady_us();
    auto made = catching_bad_alloc(
        [&]() -> Result<HttpResponse> { return values ? response(*values) : Result<HttpResponse>(values.error()); });
    const int64_t now = steady_us();
    metrics->run_ended({.reason = made ? "stop" : "error",
                        .all_us = now - call.begun_us,
                        .input_us = input_us,
                        .queue_us = times.queue_us,
                        .run_us = times.run_us,
                        .output_us = now - ended});
    log::info("run over", {{"model", std::string_view(call.model)},
                           {"client", std::string_view(call.exchange->request().client)},
                           {"error", std::string_view(made ? "" : made.error().text)},
                           {"queue_us", times.queue_us},
                           {"run_us", times.run_us}});
    while_it_runs = nullptr;
    network = nullptr;  // before the client can ask for the model's end
    call.exchange->respond(made ? *std::move(made) : call.dialect->refusal(made.error()));
  }
};

void KserveCalls::infer_network(const KserveCall& call, const std::shared_ptr<const ServedNetwork>& network,
                                const Read& read) {
  auto run = std::make_shared<Run>();
  const auto job = [&]() -> Result<NetworkQueue::Job> {
    BOLIDE_TRY(InferRequest request, read(network->inputs));
    if (!request.parameters.empty())
      return error(Code::kUnsupported, fmt::format("parameters.{:.64}: this server does not have it; leave it out",
                                                   request.parameters.begin().key()));
    BOLIDE_TRY(run->outputs, choose_outputs(request, network->outputs));
    NetworkQueue::Job made;
    BOLIDE_TRY(made.inputs, match_inputs(std::move(request.inputs), network->inputs));
    made.bytes = bytes_of(made.inputs);
    made.deadline_us = deadline_of(call, options_.request_us_max, request.timeout_us);
    run->id = std::move(request.id);
    if (keys_ != nullptr) {
      BOLIDE_TRY(run->while_it_runs, keys_->enter(*call.caller, call.begun_us));
    }
    return made;
  };
  auto made = catching_bad_alloc(job);
  if (!made) return refuse(call, made.error());
  run->call = call;
  run->network = network;
  run->metrics = metrics_.of_model(call.model);
  run->input_us = steady_us() - call.begun_us;
  made->done = [run](const Result<NetworkQueue::Values>& values, const NetworkQueue::Times& times) {
    run->end(values, times);
  };
  const auto number = network->queue->submit(*std::move(made));
  if (!number) return refuse(call, number.error());
  call.exchange->on_gone(
      [weak = std::weak_ptr(network), number = *number, metrics = run->metrics, begun_us = call.begun_us] {
        const auto there = weak.lock();
        if (there != nullptr && there->queue->cancel(number))
          metrics->run_ended({.reason = "cancelled", .all_us = steady_us() - begun_us});
      });
}

void KserveCalls::infer_text(const KserveCall& call, const std::shared_ptr<const ServedModel>& model,
                             const Read& read) {
  const ModelOutline outline = outline_of(*model);
  std::shared_ptr<const AnswerFormat> format;
  auto request = [&]() -> Result<TextRequest> {
    BOLIDE_TRY(const InferRequest infer, read(outline.inputs));
    BOLIDE_TRY(const std::vector<ChosenOutput> chosen, choose_outputs(infer, outline.outputs));
    BOLIDE_TRY(TextRequest text, text_of_infer(infer, options_.limits, call.dialect->streams()));
    format = call.dialect->text({call.model, text.id}, Shape(text.shape), chosen.front().raw);
    return text;
  }();
  if (!request) return refuse(call, request.error());
  generate(call, *std::move(request), std::move(format));
}

void KserveCalls::generate(const KserveCall& call, TextRequest request, std::shared_ptr<const AnswerFormat> format) {
  const auto job = [&]() -> Result<GenerationJob> {
    GenerationJob made;
    made.model = registry_.find(call.model);
    if (made.model == nullptr && registry_.find_network(call.model) != nullptr)
      return error(Code::kUnsupported, fmt::format("model {} generates no text: use infer", call.model));
    if (made.model == nullptr) return not_there(call.model);
    std::string param, code;
    made.wishes = std::move(request.wishes);
    BOLIDE_TRY(check_wishes(*made.model, made.wishes, &param));
    made.format = std::move(format);
    made.route = call.exchange->request().path;
    made.metrics = metrics_.of_model(call.model);
    BOLIDE_TRY(check_priority(*call.caller, made.wishes.priority));
    made.head = {"kserve-" + random_id(), call.model, unix_seconds(), false};
    if (keys_ != nullptr) {
      BOLIDE_TRY(made.while_it_runs, keys_->enter(*call.caller, call.begun_us));
    }
    BOLIDE_TRY(std::vector<int32_t> ids, prompt_ids(*made.model, Prompt(std::move(request.text)), &code));
    BOLIDE_TRY(Request one, make_request(*made.model, made.wishes, std::move(ids), kTokens, random_number(), &param));
    one.deadline_us = deadline_of(call, options_.request_us_max, request.timeout_us);
    one.key = call.caller->number;
    one.cache_salt = call.caller->salt;
    made.requests.push_back(std::move(one));
    made.record =
        std::make_shared<RequestRecord>(made.head.id, made.route, made.model, call.caller->number, call.begun_us);
    log_.add(made.record);
    return made;
  }();
  if (!job) return refuse(call, job.error());
  // On the exchange's own thread, wherever this runs.
  call.exchange->post([exchange = call.exchange, made = std::make_shared<GenerationJob>(*job)] {
    start_generation(exchange, std::move(*made));
  });
}

}  // namespace bolide::server
