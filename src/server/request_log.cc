#include "server/request_log.h"

#include <fmt/format.h>

#include "base/json_string.h"

namespace bolide::server {
namespace {

constexpr size_t kDeliveriesMax = 1024;

std::string step_json(const TimelineStep& step, size_t prompt, int64_t origin_us) {
  const auto ms = [&](int64_t us) { return static_cast<double>(us - origin_us) * 1e-3; };
  return fmt::format(
      R"({{"kind":"{}","begin_ms":{:.3f},"end_ms":{:.3f},"prompt":{},"choice":{},"position":{},"tokens":{},"steps":{},)"
      R"("draws":{},"batch_tokens":{},"batch_answers":{}}})",
      step.prompt ? "prefill" : "decode", ms(step.begin_us), ms(step.end_us), prompt, step.choice, step.first,
      step.tokens, step.steps, step.draws, step.batch_tokens, step.batch_answers);
}

}  // namespace

RequestRecord::RequestRecord(std::string id, std::string route, const std::shared_ptr<const ServedModel>& model,
                             uint32_t key, int64_t arrived_us)
    : id_(std::move(id)),
      route_(std::move(route)),
      name_(model->name),
      model_(model),
      key_(key),
      arrived_us_(arrived_us) {}

void RequestRecord::submitted(RequestId request, int64_t now_us) {
  const std::lock_guard lock(mutex_);
  if (requests_.empty()) submitted_us_ = now_us;
  requests_.push_back(request);
}

void RequestRecord::delivered(const Delivery& delivery) {
  const std::lock_guard lock(mutex_);
  if (deliveries_.size() < kDeliveriesMax) return deliveries_.push_back(delivery);
  Delivery& last = deliveries_.back();
  last.tokens += delivery.tokens;
  last.text_us += delivery.text_us;
  last.write_us += delivery.write_us;
  ++last.deliveries;
}

void RequestRecord::over(std::string_view reason, int64_t now_us) {
  const std::lock_guard lock(mutex_);
  reason_ = reason;
  over_us_ = now_us;
}

std::string RequestRecord::to_json() const {
  const std::lock_guard lock(mutex_);
  const auto ms = [&](int64_t us) {
    return us == 0 ? "null" : fmt::format("{:.3f}", static_cast<double>(us - arrived_us_) * 1e-3);
  };
  const auto model = model_.lock();
  std::string steps;
  int64_t first_step_us = 0;
  for (size_t prompt = 0; model != nullptr && prompt < requests_.size(); ++prompt) {
    const auto timeline = model->engine->timeline(requests_[prompt]);
    if (!timeline) continue;
    for (const TimelineStep& step : timeline->steps) {
      if (first_step_us == 0 || step.begin_us < first_step_us) first_step_us = step.begin_us;
      if (!steps.empty()) steps += ',';
      steps += step_json(step, prompt, arrived_us_);
    }
  }
  std::string deliveries;
  for (const Delivery& delivery : deliveries_) {
    if (!deliveries.empty()) deliveries += ',';
    deliveries += fmt::format(R"({{"at_ms":{},"tokens":{},"detokenise_ms":{:.3f},"write_ms":{:.3f},"deliveries":{}}})",
                              ms(delivery.at_us), delivery.tokens, static_cast<double>(delivery.text_us) * 1e-3,
                              static_cast<double>(delivery.write_us) * 1e-3, delivery.deliveries);
  }
  return fmt::format(R"({{"id":{},"object":"request.timeline","model":{},"route":{},"state":{},)"
                     R"("submitted_ms":{},"first_step_ms":{},"over_ms":{},"steps":[{}],"deliveries":[{}]}})",
                     json_string(id_), json_string(name_), json_string(route_),
                     json_string(over_us_ == 0 ? "running" : reason_), ms(submitted_us_), ms(first_step_us),
                     ms(over_us_), steps, deliveries);
}

void RequestLog::add(std::shared_ptr<RequestRecord> record) {
  const std::lock_guard lock(mutex_);
  order_.push_back(record->id());
  records_[record->id()] = std::move(record);
  if (order_.size() <= kept_) return;
  records_.erase(order_.front());
  order_.pop_front();
}

std::shared_ptr<const RequestRecord> RequestLog::find(std::string_view id) const {
  const std::lock_guard lock(mutex_);
  const auto it = records_.find(std::string(id));
  return it == records_.end() ? nullptr : it->second;
}

}  // namespace bolide::server
