#include "server/generation.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>
#include <mutex>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "server/random_id.h"

namespace bolide::server {
namespace {

double seconds(int64_t us) { return static_cast<double>(us) * 1e-6; }

Error too_late() { return error(Code::kDeadline, "the request took longer than this server allows"); }

class Generation final : public std::enable_shared_from_this<Generation> {
 public:
  Generation(std::shared_ptr<HttpExchange> exchange, GenerationJob job)
      : exchange_(std::move(exchange)), job_(std::move(job)), begun_us_(steady_us()) {
    const Wishes& wishes = job_.wishes;
    if (job_.format == nullptr) job_.format = openai_format(job_.head, wishes.include_usage);
    for (size_t prompt = 0; prompt < job_.requests.size(); ++prompt) {
      usage_.prompt_tokens += static_cast<int32_t>(job_.requests[prompt].prompt.size());
      if (wishes.prompt_logprobs) prompts_.emplace_back(job_.model->tokenizer, job_.requests[prompt].prompt);
      const size_t offset = job_.echoes.empty() ? 0 : characters_of(job_.echoes[prompt]);
      for (int32_t choice = 0; choice < wishes.choices; ++choice) {
        Answer& answer = answers_.emplace_back(
            AnswerText(job_.model->tokenizer, wishes.stops, wishes.logprobs, wishes.tokens_min, offset), job_.tools);
        answer.content.index = static_cast<int32_t>(answers_.size()) - 1;
        answer.content.logprobs = wishes.logprobs;
      }
    }
    left_ = answers_.size();
  }

  void start();
  // The engine's thread.
  void arrived(uint32_t prompt, const Progress& progress);
  void failed(const Error& failure);

 private:
  struct Answer {
    Answer(AnswerText made, ToolFormat format) : text(std::move(made)), calls(format) {}
    AnswerText text;
    ToolCallParser calls;
    AnswerContent content;
    bool begun = false, over = false;
    int64_t token_us = 0;  // when its last token was made
  };
  // A prompt whose tokens' log-probabilities are shown.
  struct PromptText {
    PromptText(const Tokenizer& tokenizer, std::vector<int32_t> made)
        : ids(std::move(made)), text(tokenizer, {}, true) {
      add({NAN, {}});
    }
    void add(const ScoredToken& token) {
      take(text.push(ids[done++], token.logprob, token.top));
      if (done == ids.size()) take(text.finish());
    }
    void take(TextPart part) {
      for (TextPart::Token& token : part.tokens) tokens.push_back(std::move(token));
    }
    std::vector<int32_t> ids;
    size_t done = 0;
    AnswerText text;
    std::vector<TextPart::Token> tokens;
  };
  struct Event {
    uint32_t prompt;
    int64_t at_us;
    Progress progress;
  };

  void wake();
  void take_events();
  void take(const Event& event);
  void take_scores(size_t prompt, const std::vector<ScoredToken>& scored);
  size_t prompt_of(const AnswerContent& content) const {
    return static_cast<size_t>(content.index / job_.wishes.choices);
  }
  TextPart echo_of(const AnswerContent& content) const;
  void show(Answer& answer, TextPart part);
  void show_calls(Answer& answer, const std::vector<ToolEvent>& events, TextPart rest);
  std::string call_id(const Answer& answer, size_t call) const;
  void end(Answer& answer, std::string_view reason);
  void finish();
  void fail(const Error& failure);
  void cancel();
  void report(std::string_view reason);
  void keep_deadline(int64_t deadline_us);

  std::shared_ptr<HttpExchange> exchange_;
  GenerationJob job_;
  std::vector<RequestId> ids_;  // of the requests that were accepted
  std::vector<Answer> answers_;
  std::vector<PromptText> prompts_;  // none: their tokens are not shown
  size_t left_ = 0;                  // answers that are not over
  Usage usage_;
  std::string out_;  // chunks to be written
  bool over_ = false;
  int64_t begun_us_;
  int64_t step_us_ = 0, first_token_us_ = 0, last_token_us_ = 0;  // the first step; 0: there was none yet

  std::mutex mutex_;  // guards what follows
  std::vector<Event> events_;
  std::optional<Error> failure_;
  bool woken_ = false;
};

class Sink final : public RequestSink {
 public:
  Sink(std::shared_ptr<Generation> generation, uint32_t prompt) : generation_(std::move(generation)), prompt_(prompt) {}
  void on_progress(const Progress& progress) override { generation_->arrived(prompt_, progress); }
  void on_failure(const Error& failure) override { generation_->failed(failure); }

 private:
  std::shared_ptr<Generation> generation_;
  uint32_t prompt_;
};

void Generation::start() {
  const int64_t deadline_us = job_.requests.empty() ? kNoDeadline : job_.requests.front().deadline_us;
  for (uint32_t prompt = 0; prompt < job_.requests.size(); ++prompt) {
    auto id = job_.model->engine->submit(std::move(job_.requests[prompt]),
                                         std::make_shared<Sink>(shared_from_this(), prompt));
    if (!id) return fail(id.error());
    ids_.push_back(*id);
    if (job_.record != nullptr) job_.record->submitted(*id, steady_us());
  }
  exchange_->on_gone([weak = weak_from_this()] {
    const auto self = weak.lock();
    if (self == nullptr || self->over_) return;
    self->cancel();
    self->report("cancelled");
  });
  keep_deadline(deadline_us);
  if (!job_.wishes.stream || over_) return;
  exchange_->begin(200,
                   {{"Content-Type", "text/event-stream; charset=utf-8"},
                    {"Cache-Control", "no-cache"},
                    {"X-Accel-Buffering", "no"},
                    {"x-request-id", job_.head.id}},
                   ": ping\n\n");
}

// The engine looks at deadlines between its steps; that a step hangs is seen here.
void Generation::keep_deadline(int64_t deadline_us) {
  if (deadline_us == kNoDeadline) return;
  exchange_->post_at(std::chrono::steady_clock::time_point(std::chrono::microseconds(deadline_us)),
                     [weak = weak_from_this()] {
                       const auto self = weak.lock();
                       if (self != nullptr && !self->over_) self->fail(too_late());
                     });
}

void Generation::arrived(uint32_t prompt, const Progress& progress) {
  const int64_t now = steady_us();
  const std::lock_guard lock(mutex_);
  events_.push_back({prompt, now, progress});
  wake();
}

void Generation::failed(const Error& failure) {
  const std::lock_guard lock(mutex_);
  if (!failure_) failure_ = failure;
  wake();
}

// With the mutex held. One task takes all that has arrived until it runs.
void Generation::wake() {
  if (std::exchange(woken_, true)) return;
  exchange_->post([self = shared_from_this()] { self->take_events(); });
}

void Generation::take_events() {
  std::vector<Event> events;
  std::optional<Error> failure;
  {
    const std::lock_guard lock(mutex_);
    events.swap(events_);
    failure = std::exchange(failure_, std::nullopt);
    woken_ = false;
  }
  if (over_) return;
  Delivery delivery{.at_us = steady_us()};
  for (const Event& event : events) {
    delivery.tokens += event.progress.token >= 0 ? 1 : 0;
    if (!over_) take(event);
  }
  if (failure && !over_) fail(*failure);
  const int64_t written_us = steady_us();
  // A client that is too slow is given up by the server, which says that it is gone.
  if (!out_.empty() && !over_) exchange_->write(std::exchange(out_, {}));
  delivery.text_us = written_us - delivery.at_us;
  delivery.write_us = steady_us() - written_us;
  if (job_.record != nullptr) job_.record->delivered(delivery);
}

void Generation::take(const Event& event) {
  const Progress& progress = event.progress;
  Answer& answer =
      answers_[event.prompt * static_cast<size_t>(job_.wishes.choices) + static_cast<size_t>(progress.choice)];
  if (answer.over) return;
  if (!progress.prompt.empty()) take_scores(event.prompt, progress.prompt);
  const bool prompt_alone = job_.wishes.tokens_max == 0;
  if (progress.token >= 0) {
    usage_.completion_tokens += prompt_alone ? 0 : 1;
    if (progress.choice == 0) usage_.cached_tokens += progress.cached;
    if (job_.metrics != nullptr) {
      if (progress.begun_us > 0) job_.metrics->queued(seconds(std::max<int64_t>(progress.begun_us - begun_us_, 0)));
      if (answer.token_us > 0)
        job_.metrics->inter_token(seconds(event.at_us - answer.token_us));
      else if (first_token_us_ == 0)
        job_.metrics->first_token(seconds(event.at_us - begun_us_));
    }
    answer.token_us = last_token_us_ = event.at_us;
    if (first_token_us_ == 0) first_token_us_ = event.at_us;
    if (step_us_ == 0) step_us_ = progress.begun_us;
    if (prompt_alone) return end(answer, "length");
    if (progress.ended != Ended::kStop) show(answer, answer.text.push(progress.token, progress.logprob, progress.top));
  }
  if (answer.text.stopped()) {
    if (progress.ended == Ended::kNot) job_.model->engine->finish(ids_[event.prompt], progress.choice);
    return end(answer, "stop");
  }
  switch (progress.ended) {
    case Ended::kNot: return;
    case Ended::kStop:
    case Ended::kLength:
      show(answer, answer.text.finish());
      return end(answer, progress.ended == Ended::kStop || answer.text.stopped() ? "stop" : "length");
    case Ended::kDeadline: return fail(too_late());
    case Ended::kNoToken:
      return fail(error(Code::kInternal, "no token can be drawn: the model's logits are NaN or infinite"));
  }
}

void Generation::take_scores(size_t prompt, const std::vector<ScoredToken>& scored) {
  PromptText& text = prompts_[prompt];
  for (const ScoredToken& token : scored) text.add(token);
  if (!job_.wishes.stream) return;
  // As they come: together they may be more than a client reads at once.
  const auto choices = static_cast<size_t>(job_.wishes.choices);
  for (size_t at = prompt * choices; at < (prompt + 1) * choices; ++at) {
    Answer& answer = answers_[at];
    if (answer.begun)
      out_ += job_.format->text(answer.content.index, {{}, text.tokens}, true);
    else
      show(answer, {});
  }
  text.tokens.clear();
}

// What the answers to a prompt begin with; its tokens are those that were not streamed.
TextPart Generation::echo_of(const AnswerContent& content) const {
  const size_t prompt = prompt_of(content);
  TextPart echo{job_.echoes[prompt], {}};
  if (!prompts_.empty()) echo.tokens = prompts_[prompt].tokens;
  return echo;
}

void Generation::show(Answer& answer, TextPart part) {
  if (job_.wishes.stream && !std::exchange(answer.begun, true)) {
    out_ += job_.format->begin(answer.content.index);
    if (!job_.echoes.empty())
      out_ += job_.format->text(answer.content.index, echo_of(answer.content), job_.wishes.prompt_logprobs);
  }
  if (job_.tools != ToolFormat::kNone) {
    std::vector<ToolEvent> events;
    answer.calls.push(part.text, &events);
    part.text.clear();
    return show_calls(answer, events, std::move(part));
  }
  if (job_.wishes.stream) {
    if (!part.text.empty() || !part.tokens.empty())
      out_ += job_.format->text(answer.content.index, part, job_.wishes.logprobs);
    return;
  }
  answer.content.text += part.text;
  for (TextPart::Token& token : part.tokens) answer.content.tokens.push_back(std::move(token));
}

// Mistral's templates refuse a call that comes back with another id than nine letters and digits.
std::string Generation::call_id(const Answer& answer, size_t call) const {
  if (job_.tools == ToolFormat::kMistral) return random_id().substr(0, 9);
  return fmt::format("call_{}_{}_{}", job_.head.id.substr(job_.head.id.rfind('-') + 1), answer.content.index, call);
}

// `rest`: the tokens of what the events are made of, if they are wanted.
void Generation::show_calls(Answer& answer, const std::vector<ToolEvent>& events, TextPart rest) {
  const int32_t index = answer.content.index;
  for (const ToolEvent& event : events) {
    std::vector<ToolCall>& calls = answer.content.tool_calls;
    switch (event.kind) {
      case ToolEvent::Kind::kText: rest.text += event.text; break;
      case ToolEvent::Kind::kBegin:
        if (job_.wishes.stream && !rest.text.empty())
          out_ += job_.format->text(index, std::exchange(rest, {}), job_.wishes.logprobs);
        calls.push_back({call_id(answer, event.call), event.text, ""});
        if (job_.wishes.stream) out_ += job_.format->tool_begin(index, event.call, calls.back());
        break;
      case ToolEvent::Kind::kArguments:
        if (job_.wishes.stream)
          out_ += job_.format->tool_more(index, event.call, event.text);
        else
          calls[event.call].arguments += event.text;
        break;
    }
  }
  if (!job_.wishes.stream) {
    answer.content.text += rest.text;
    for (TextPart::Token& token : rest.tokens) answer.content.tokens.push_back(std::move(token));
  } else if (!rest.text.empty() || !rest.tokens.empty()) {
    out_ += job_.format->text(index, rest, job_.wishes.logprobs);
  }
}

void Generation::end(Answer& answer, std::string_view reason) {
  std::vector<ToolEvent> events;
  answer.calls.finish(&events);
  show_calls(answer, events, {});
  if (answer.calls.calls() > 0 && reason == "stop") reason = "tool_calls";  // one that was cut is no call
  answer.over = true;
  answer.content.finish_reason = reason;
  if (job_.wishes.stream) {
    show(answer, {});  // an answer without a token has its role, too
    out_ += job_.format->finish(answer.content.index, reason);
  }
  if (--left_ == 0) finish();
}

void Generation::finish() {
  over_ = true;
  if (job_.wishes.stream) {
    out_ += job_.format->end(usage_);
    exchange_->write(std::exchange(out_, {}));
    exchange_->end();
  } else {
    std::vector<AnswerContent> contents;
    for (Answer& answer : answers_) {
      contents.push_back(std::move(answer.content));
      if (job_.echoes.empty()) continue;
      AnswerContent& content = contents.back();
      TextPart echo = echo_of(content);
      content.text.insert(0, echo.text);
      content.tokens.insert(content.tokens.begin(), std::move_iterator(echo.tokens.begin()),
                            std::move_iterator(echo.tokens.end()));
    }
    HttpResponse response = job_.format->whole(contents, usage_);
    response.headers.emplace_back("x-request-id", job_.head.id);
    exchange_->respond(std::move(response));
  }
  report(answers_.front().content.finish_reason);
}

void Generation::fail(const Error& failure) {
  const bool begun = job_.wishes.stream && ids_.size() == job_.requests.size();
  cancel();
  if (begun) {
    exchange_->write(std::exchange(out_, {}) + job_.format->error_event(failure));
    exchange_->end();
  } else {
    exchange_->respond(job_.format->refusal(failure));
  }
  report("error");
}

void Generation::cancel() {
  over_ = true;
  for (const RequestId id : ids_) job_.model->engine->cancel(id);
}

void Generation::report(std::string_view reason) {
  const int64_t now = steady_us();
  const double took = seconds(now - begun_us_);
  if (job_.record != nullptr) job_.record->over(reason, now);
  if (job_.metrics != nullptr) {
    RequestFigures figures{reason, took, usage_.prompt_tokens, usage_.completion_tokens, usage_.cached_tokens};
    if (step_us_ > 0) figures.prefill_seconds = seconds(std::max<int64_t>(first_token_us_ - step_us_, 0));
    figures.decode_seconds = seconds(last_token_us_ - first_token_us_);
    job_.metrics->request_ended(figures);
  }
  log::info("request over", {{"id", std::string_view(job_.head.id)},
                             {"route", std::string_view(job_.route)},
                             {"model", std::string_view(job_.head.model)},
                             {"client", std::string_view(exchange_->request().client)},
                             {"reason", reason},
                             {"prompt_tokens", usage_.prompt_tokens},
                             {"completion_tokens", usage_.completion_tokens},
                             {"seconds", took}});
  job_.while_it_runs = nullptr;
}

}  // namespace

void start_generation(std::shared_ptr<HttpExchange> exchange, GenerationJob job) {
  std::make_shared<Generation>(std::move(exchange), std::move(job))->start();
}

}  // namespace bolide::server
