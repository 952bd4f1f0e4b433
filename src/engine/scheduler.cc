#include "engine/scheduler.h"

#include <fmt/format.h>

#include <algorithm>

namespace bolide {
namespace {

bool ranks_before(const AnswerState& a, const AnswerState& b) {
  return std::pair(a.request->priority, a.arrival) < std::pair(b.request->priority, b.arrival);
}

bool contains(std::span<const int32_t> ids, int32_t id) { return std::find(ids.begin(), ids.end(), id) != ids.end(); }

// A token that is drawn costs about twice one that is read (Sheng et al. 2024, arXiv:2401.00588).
constexpr int64_t kDrawnCosts = 2;

// Rows of logits that a step has for prompts that are scored: each comes to the host.
constexpr int32_t kScoredRowsMax = 64;

}  // namespace

Scheduler::Scheduler(const SchedulerOptions& options) : options_(options), allocator_(options.blocks) {
  BOLIDE_CHECK(options.block_tokens > 0 && options.blocks > 0 && options.context > 0 && options.sequences_max > 0,
               "blocks, their tokens, context and sequences must be positive");
  BOLIDE_CHECK(options.tokens_per_step >= options.sequences_max, "{} tokens a step for {} sequences",
               options.tokens_per_step, options.sequences_max);
  options_.rows_max = std::max(options.rows_max, options.sequences_max);
}

Result<> check_request(const SchedulerOptions& options, const Request& request) {
  const auto prompt = static_cast<int64_t>(request.prompt.size());
  BOLIDE_CHECK(prompt > 0 && request.tokens_max > 0 && request.choices > 0, "the request was not validated");
  if (prompt >= options.context)
    return error(Code::kInvalid,
                 fmt::format("the prompt has {} tokens, the context holds {} with the answer; shorten it", prompt,
                             options.context));
  const int64_t longest = std::min<int64_t>(prompt + request.tokens_max, options.context);
  const int64_t room = int64_t{options.blocks} * options.block_tokens;
  if (longest <= room) return {};
  return error(Code::kInvalid, fmt::format("prompt and answer may need {} tokens, the KV cache holds {}; ask for a "
                                           "shorter answer",
                                           longest, room));
}

Result<> Scheduler::add(const std::shared_ptr<const Request>& request) {
  BOLIDE_TRY(check_request(options_, *request));
  const auto [it, added] = requests_.try_emplace(request->id);
  if (!added) return error(Code::kInvalid, fmt::format("request {} is there already", request->id));
  Entry& entry = it->second;
  entry.request = request;
  entry.left = request->choices;
  entry.answers.push_back(make_answer(request, 0));
  if (request->deadline_us != kNoDeadline) deadlines_.emplace(request->deadline_us, request->id);
  // Who comes back after a pause has no claim on what was served meanwhile.
  if (active_[request->key]++ == 0) {
    int64_t least = kNoDeadline;
    for (const auto& [key, tokens] : served_) least = std::min(least, tokens);
    served_[request->key] = least == kNoDeadline ? 0 : least;
  }
  start_waiting(*entry.answers.front(), AnswerState::Place::kWaiting);
  return {};
}

std::unique_ptr<AnswerState> Scheduler::make_answer(const std::shared_ptr<const Request>& request, int32_t choice) {
  auto answer = std::make_unique<AnswerState>();
  answer->request = request;
  answer->choice = choice;
  answer->arrival = ++arrivals_;
  answer->sequence.tokens = request->prompt;
  answer->sequence.prompt_count = static_cast<int32_t>(request->prompt.size());
  answer->sequence.sampling = request->sampling;
  answer->sequence.request = static_cast<uint64_t>(choice);
  // Answers after the first start from what that has computed.
  answer->scored = request->prompt_logprobs && choice == 0 ? 0 : answer->sequence.prompt_count;
  return answer;
}

void Scheduler::cancel(RequestId request) {
  const auto it = requests_.find(request);
  if (it == requests_.end()) return;
  for (const auto& answer : it->second.answers) end(*answer);
  it->second.left = 0;
  bury_if_over(request);
}

bool Scheduler::finish(RequestId request, int32_t choice) {
  const auto it = requests_.find(request);
  if (it == requests_.end()) return false;
  Entry& entry = it->second;
  BOLIDE_CHECK(choice >= 0 && static_cast<size_t>(choice) < entry.answers.size(), "request {} has no answer {}",
               request, choice);
  AnswerState& answer = *entry.answers[static_cast<size_t>(choice)];
  if (answer.over) return false;
  end(answer);
  --entry.left;
  return bury_if_over(request);
}

void Scheduler::end(AnswerState& answer) {
  if (answer.over) return;
  leave(answer);
  give_up(answer);
  answer.over = true;
}

// Answers that a step under way still names stay until it is committed.
bool Scheduler::bury_if_over(RequestId id) {
  const auto it = requests_.find(id);
  Entry& entry = it->second;
  if (entry.left > 0) return false;
  const Request& request = *entry.request;
  deadlines_.erase({request.deadline_us, id});
  if (--active_[request.key] == 0) {
    active_.erase(request.key);
    served_.erase(request.key);
  }
  for (auto& answer : entry.answers) (answer->underway > 0 ? leaving_ : over_).push_back(std::move(answer));
  requests_.erase(it);
  return true;
}

void Scheduler::abandon() {
  std::vector<RequestId> ids;
  for (const auto& [id, entry] : requests_) ids.push_back(id);
  for (const RequestId id : ids) cancel(id);
  underway_.clear();
  for (auto& answer : leaving_) over_.push_back(std::move(answer));
  leaving_.clear();
  allocator_.forget();
}

void Scheduler::end_late(int64_t now_us, std::vector<Progress>* progress) {
  while (!deadlines_.empty() && deadlines_.begin()->first <= now_us) {
    const RequestId id = deadlines_.begin()->second;
    Entry& entry = requests_.at(id);
    for (int32_t choice = 0; choice < entry.request->choices; ++choice) {
      const bool made = static_cast<size_t>(choice) < entry.answers.size();
      if (made && entry.answers[static_cast<size_t>(choice)]->over) continue;
      progress->push_back({id, choice, -1, 0, 0, Ended::kDeadline, --entry.left == 0});
      if (made) end(*entry.answers[static_cast<size_t>(choice)]);
    }
    bury_if_over(id);
  }
}

// --- who runs ---

void Scheduler::start_waiting(AnswerState& answer, AnswerState::Place place) {
  answer.place = place;
  const int32_t priority = answer.request->priority;
  if (place == AnswerState::Place::kPreempted)
    preempted_.emplace(std::pair(priority, answer.arrival), &answer);
  else
    waiting_[priority][answer.request->key].emplace(answer.arrival, &answer);
  ++counted_.waiting;
  counted_.waiting_tokens += answer.sequence.size();
}

void Scheduler::start_running(AnswerState& answer) {
  answer.place = AnswerState::Place::kRunning;
  const auto at = std::upper_bound(running_.begin(), running_.end(), &answer,
                                   [](const AnswerState* a, const AnswerState* b) { return ranks_before(*a, *b); });
  running_.insert(at, &answer);
}

// Takes the answer from where it waits or runs.
void Scheduler::leave(AnswerState& answer) {
  const int32_t priority = answer.request->priority;
  switch (answer.place) {
    case AnswerState::Place::kNowhere: return;
    case AnswerState::Place::kRunning: running_.erase(std::find(running_.begin(), running_.end(), &answer)); break;
    case AnswerState::Place::kPreempted: preempted_.erase({priority, answer.arrival}); break;
    case AnswerState::Place::kWaiting: {
      auto& keys = waiting_[priority];
      Queue& queue = keys[answer.request->key];
      queue.erase(answer.arrival);
      if (queue.empty()) keys.erase(answer.request->key);
      if (keys.empty()) waiting_.erase(priority);
      break;
    }
  }
  if (answer.place != AnswerState::Place::kRunning) {
    --counted_.waiting;
    counted_.waiting_tokens -= answer.sequence.size();
  }
  answer.place = AnswerState::Place::kNowhere;
}

// Of the most urgent priority: who was preempted; else the first of the key that was served least.
AnswerState* Scheduler::next_waiting() {
  AnswerState* preempted = preempted_.empty() ? nullptr : preempted_.begin()->second;
  if (waiting_.empty()) return preempted;
  const auto& [priority, keys] = *waiting_.begin();
  if (preempted != nullptr && preempted->request->priority <= priority) return preempted;
  const Queue* best = nullptr;
  int64_t least = kNoDeadline;
  for (const auto& [key, queue] : keys)
    if (const int64_t served = served_.at(key); served < least) best = &queue, least = served;
  return best->begin()->second;
}

// Room for all its tokens, and for a token of each that runs: whoever is admitted should not be preempted at once.
bool Scheduler::fits(const AnswerState& answer) const {
  if (static_cast<int32_t>(running_.size()) >= options_.sequences_max) return false;
  if (running_.empty()) return true;
  const int32_t held = static_cast<int32_t>(answer.sequence.blocks.size());
  return allocator_.free_count() >= blocks_for(answer.sequence.size()) - held + static_cast<int32_t>(running_.size());
}

// Lets more urgent answers in at the cost of less urgent ones.
void Scheduler::make_way() {
  for (AnswerState* answer = next_waiting(); answer != nullptr && !running_.empty() && !fits(*answer);) {
    if (running_.back()->request->priority <= answer->request->priority) return;
    preempt(*running_.back());
  }
}

bool Scheduler::admit(AnswerState& answer, int64_t now_us) {
  // What it needs is on its way.
  if (!may_continue(answer)) return false;
  find_prefix(answer);
  if (!fits(answer)) {
    give_up(answer);
    return false;
  }
  counted_.prefix_tokens_asked += answer.sequence.size();
  counted_.prefix_tokens_found += answer.sequence.computed;
  if (answer.drawn == 0) answer.found = answer.sequence.computed;
  if (answer.begun_us == 0) answer.begun_us = now_us;
  leave(answer);
  start_running(answer);
  return true;
}

void Scheduler::preempt(AnswerState& answer) {
  leave(answer);
  give_up(answer);
  start_waiting(answer, AnswerState::Place::kPreempted);
  ++counted_.preemptions;
}

// --- a step ---

// Longrope rotates every key by the length at hand: beyond its boundary all are computed again.
bool Scheduler::crosses(const AnswerState& answer) const {
  const Sequence& s = answer.sequence;
  return options_.rope_switch > 0 && s.computed > 0 && s.rope_length <= options_.rope_switch &&
         s.size() > options_.rope_switch;
}

bool Scheduler::may_continue(const AnswerState& answer) const {
  const Sequence& s = answer.sequence;
  // Its last token is drawn, or on its way.
  if (s.size() - s.prompt_count >= answer.request->tokens_max || s.size() >= options_.context) return false;
  if (answer.draws == 0) return true;
  const SamplingParams& p = s.sampling;
  const bool by_history = p.repetition_penalty != 1 || p.presence_penalty != 0 || p.frequency_penalty != 0;
  return !by_history && !crosses(answer);
}

// Beyond one for each answer that may be in the step.
int32_t Scheduler::spare_rows() const {
  const int32_t items = std::min(options_.sequences_max, static_cast<int32_t>(running_.size()) + counted_.waiting);
  return std::min(options_.rows_max - items, kScoredRowsMax - 1);
}

int32_t Scheduler::add_item(AnswerState& answer, int32_t tokens, bool may_preempt, int32_t* spare_rows,
                            StepBatch& batch) {
  Sequence& s = answer.sequence;
  const bool scored = scores(answer);
  if (scored) tokens = std::min(tokens, std::max(answer.scored - s.computed, 0) + 1 + *spare_rows);
  int32_t added = 0;
  while (added < tokens) {
    const int32_t position = s.computed + added;
    if (!make_room(answer, position, batch)) {
      if (added > 0 || !may_preempt || running_.back() == &answer) break;
      preempt(*running_.back());
      continue;
    }
    added = std::min(tokens, (position / options_.block_tokens + 1) * options_.block_tokens - s.computed);
  }
  if (added == 0) return 0;
  StepItem item{&answer, s.computed, added};
  item.length = s.size();
  item.draws = s.computed + added == s.size();
  item.epoch = answer.epoch;
  const int32_t end = s.computed + added;
  item.row_first = end - 1;
  if (scored && answer.scored < end) {
    item.row_first = std::max(answer.scored, s.computed);
    answer.scored = std::min(end, s.prompt_count - 1);
    item.scores = answer.scored - item.row_first;
    *spare_rows -= end - 1 - item.row_first;
  }
  if (answer.draws > 0) {
    BOLIDE_CHECK(answer.drawn_by == steps_, "step {} cannot follow step {}", steps_ + 1, answer.drawn_by);
    item.chained_item = answer.drawn_item;
  }
  s.computed += added;
  s.rope_length = s.size();
  ++answer.underway;
  if (item.draws) {
    ++answer.draws;
    answer.drawn_by = steps_ + 1;
    answer.drawn_item = static_cast<int32_t>(batch.items.size());
    s.tokens.push_back(0);
  }
  served_.at(answer.request->key) += added + (item.draws ? kDrawnCosts - 1 : 0);
  batch.tokens += added;
  batch.context += s.computed;
  batch.items.push_back(item);
  return added;
}

StepBatch Scheduler::schedule(const StepBudget& budget, std::vector<Progress>* progress) {
  BOLIDE_CHECK(underway_.size() < 2, "two steps are under way");
  StepBatch batch;
  end_late(budget.now_us, progress);
  make_way();
  const auto left_of = [](const AnswerState& a) { return a.sequence.size() - a.sequence.computed; };
  int32_t decoding = 0;
  for (AnswerState* answer : running_) {
    if (answer->draws == 0 && crosses(*answer)) {
      give_up(*answer);
      find_prefix(*answer);
    }
    decoding += may_continue(*answer) && left_of(*answer) == 1 ? 1 : 0;
  }
  const int32_t limit = std::min(budget.tokens, options_.tokens_per_step);
  int32_t spare = std::max(0, limit - decoding), rows = spare_rows();
  for (size_t i = 0; i < running_.size(); ++i) {  // preempting makes it shorter, at its end
    AnswerState& answer = *running_[i];
    if (!may_continue(answer)) continue;
    const int32_t left = left_of(answer);
    const int32_t tokens = left == 1 ? 1 : std::min(left, spare);
    if (tokens == 0) continue;
    const int32_t added = add_item(answer, tokens, /*may_preempt=*/true, &rows, batch);
    if (left > 1) spare -= added;
    // Nobody ranks behind it: it waits for blocks like those.
    if (added == 0) preempt(answer);
  }
  for (spare = limit - batch.tokens; spare > 0;) {
    AnswerState* answer = next_waiting();
    if (answer == nullptr || !admit(*answer, budget.now_us)) break;
    const int32_t added = add_item(*answer, std::min(left_of(*answer), spare), /*may_preempt=*/false, &rows, batch);
    BOLIDE_CHECK(added > 0, "request {} was admitted without blocks", answer->request->id);
    spare -= added;
  }
  if (batch.items.empty()) return batch;
  batch.number = ++steps_;
  underway_.push_back(batch.number);
  return batch;
}

void Scheduler::commit(const StepBatch& batch, std::span<const int32_t> ids, std::span<const float> logprobs,
                       std::vector<Progress>* progress, std::span<std::vector<TokenLogprob>> tops,
                       std::span<std::vector<ScoredToken>> scored) {
  BOLIDE_CHECK(!underway_.empty() && underway_.front() == batch.number, "step {} is not the oldest under way",
               batch.number);
  BOLIDE_CHECK(ids.size() == batch.items.size() && logprobs.size() == ids.size(), "{} ids for {} items", ids.size(),
               batch.items.size());
  underway_.erase(underway_.begin());
  for (size_t i = 0; i < batch.items.size(); ++i) {
    const StepItem& item = batch.items[i];
    AnswerState& answer = *item.answer;
    --answer.underway;
    answer.draws -= item.draws ? 1 : 0;
    if (answer.over) {
      const auto it = std::find_if(leaving_.begin(), leaving_.end(), [&](const auto& a) { return a.get() == &answer; });
      if (answer.underway > 0 || it == leaving_.end()) continue;
      over_.push_back(std::move(*it));
      leaving_.erase(it);
      continue;
    }
    Sequence& s = answer.sequence;
    if (item.scores > 0) {
      Progress made{answer.request->id, answer.choice};
      made.prompt = std::move(scored[i]);
      progress->push_back(std::move(made));
    }
    if (item.epoch == answer.epoch) answer.committed = item.first + item.tokens;
    if (!item.draws) {
      publish(answer);
      continue;
    }
    const int32_t id = ids[i];
    const Request& request = *answer.request;
    Entry& entry = requests_.at(request.id);
    s.tokens[static_cast<size_t>(s.prompt_count + answer.drawn)] = id;
    ++answer.drawn;
    publish(answer);
    if (answer.drawn == 1 && answer.choice == 0) fork(entry);
    Ended ended = Ended::kNot;
    if (id < 0)
      ended = Ended::kNoToken;
    else if (contains(request.stop_ids, id))
      ended = Ended::kStop;
    else if (answer.drawn == request.tokens_max || s.prompt_count + answer.drawn >= options_.context)
      ended = Ended::kLength;
    Progress made{request.id, answer.choice, id, logprobs[i], answer.drawn == 1 ? answer.found : 0, ended};
    if (!tops.empty()) made.top = std::move(tops[i]);
    if (answer.drawn == 1 && answer.choice == 0) made.begun_us = answer.begun_us;
    if (ended != Ended::kNot) {
      end(answer);
      made.request_over = --entry.left == 0;
      bury_if_over(request.id);
    }
    progress->push_back(std::move(made));
  }
}

// The other answers to the prompt start from what the first has computed of it. They compute its last token again: the
// logits from which they draw.
void Scheduler::fork(Entry& entry) {
  const AnswerState& first = *entry.answers.front();
  const int32_t prompt = first.sequence.prompt_count;
  for (int32_t choice = 1; choice < entry.request->choices; ++choice) {
    AnswerState& answer = *entry.answers.emplace_back(make_answer(entry.request, choice));
    if (static_cast<int32_t>(running_.size()) >= options_.sequences_max || first.committed < prompt) {
      start_waiting(answer, AnswerState::Place::kPreempted);
      continue;
    }
    Sequence& s = answer.sequence;
    find_prefix(answer);
    for (int32_t at = static_cast<int32_t>(s.blocks.size()); at < blocks_for(prompt); ++at) {
      s.blocks.push_back(first.sequence.blocks[static_cast<size_t>(at)]);
      allocator_.share(s.blocks.back());
    }
    s.computed = answer.committed = prompt - 1;
    s.rope_length = prompt;
    start_running(answer);
  }
}

SchedulerStats Scheduler::stats() const {
  SchedulerStats stats = counted_;
  stats.running = static_cast<int32_t>(running_.size());
  stats.preempted = static_cast<int32_t>(preempted_.size());
  stats.blocks = allocator_.block_count();
  stats.blocks_kept = allocator_.kept_count();
  stats.blocks_used = allocator_.block_count() - allocator_.free_count();
  return stats;
}

}  // namespace bolide
