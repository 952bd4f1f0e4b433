// Scheduler: decides what each step of the engine computes: continuous batching with chunked prefill, prefix reuse,
// preemption by recomputing, priorities, deadlines, and fairness between keys.
//
// Pure: it sees no device, no clock and no thread; the same calls give the same answers. Steps are committed in the
// order in which they were scheduled; one can be scheduled before the one before it is committed, since what it
// computes follows from counts alone: a token that is not known yet is a placeholder whose id a device takes from the
// step that draws it.
//
// Owner: the engine thread. The rules that it keeps are in CONTRACT.md.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <span>
#include <unordered_map>
#include <utility>

#include "engine/request.h"
#include "kv/block_allocator.h"

namespace bolide {

struct SchedulerOptions {
  int32_t blocks = 0;             // of the KV cache
  int32_t block_tokens = 16;      // P
  int32_t context = 0;            // tokens a sequence may hold
  int32_t sequences_max = 1;      // in a step
  int32_t tokens_per_step = 512;  // at least sequences_max
  int32_t rows_max = 1;           // of logits in a step; at least sequences_max
  bool prefix_cache = true;
  uint64_t secret = 0;  // of PrefixKey
  // Lengths beyond which all keys are rotated otherwise (GraphFacts): 0 is never.
  int64_t rope_switch = 0, rope_dynamic = 0;
};

enum class Ended : uint8_t { kNot, kStop, kLength, kDeadline, kNoToken };

// One answer to a request, on its way. The engine reads it; only the scheduler changes it.
struct AnswerState {
  std::shared_ptr<const Request> request;
  int32_t choice = 0;
  // `tokens` may end in placeholders, one per step under way that draws; `computed` counts steps under way.
  Sequence sequence;
  uint64_t arrival = 0;   // order of arrival; answers to one request differ
  int32_t drawn = 0;      // tokens of the answer that are known
  int32_t underway = 0;   // steps
  int32_t draws = 0;      // steps under way that draw
  int32_t committed = 0;  // tokens whose keys and values are in the cache and will stay
  uint32_t epoch = 0;     // grows when what was computed is given up
  uint64_t drawn_by = 0;  // the last step that draws for it, and its item there
  int32_t drawn_item = -1;
  int32_t scored = 0;     // positions of the prompt whose logits need not be looked at: all, if nobody wants that
  int32_t found = 0;      // tokens of the prompt that were in the cache when it was first admitted
  int64_t begun_us = 0;   // when it was, on the clock of schedule
  int32_t published = 0;  // full blocks of `sequence` that prefix reuse knows
  PrefixKey prefix;       // of those
  enum class Place : uint8_t { kNowhere, kWaiting, kPreempted, kRunning } place = Place::kNowhere;
  bool over = false;
};

// What a step computes of one answer: positions [first, first + tokens).
struct StepItem {
  AnswerState* answer = nullptr;
  int32_t first = 0, tokens = 0;
  bool draws = false;         // it ends the known tokens: the next is drawn from its logits
  int32_t chained_item = -1;  // of the step before, which draws the last token's id; -1: the id is known
  int32_t length = 0;         // tokens of the answer's sequence, without the one that is drawn
  int32_t row_first = 0;      // logits of positions from here on are wanted: of the last one always
  int32_t scores = 0;  // of those rows from the first on: the log-probability of the prompt's next token is wanted
  uint32_t epoch = 0;
};
struct BlockCopy {
  BlockId from, to;
};

struct StepBatch {
  uint64_t number = 0;  // from 1
  std::vector<StepItem> items;
  std::vector<BlockCopy> copies;  // to be made before the step, in this order
  int32_t tokens = 0;             // of all items
  int64_t context = 0;            // cached tokens that its attention reads, summed over items
};

struct TokenLogprob {
  int32_t id = 0;
  float logprob = 0;
};

// A token of the prompt, after those before it.
struct ScoredToken {
  float logprob = 0;
  std::vector<TokenLogprob> top;  // as Progress has them
};

// A token of an answer, or its end, or log-probabilities of the prompt.
struct Progress {
  RequestId request = 0;
  int32_t choice = 0;
  int32_t token = -1;  // -1: none
  float logprob = 0;
  int32_t cached = 0;  // tokens of the prompt that did not have to be computed, with an answer's first token
  Ended ended = Ended::kNot;
  bool request_over = false;        // it was the request's last answer
  std::vector<TokenLogprob> top;    // Request::top_logprobs of them, likeliest first
  std::vector<ScoredToken> prompt;  // the prompt's next tokens, from its second on: before the first of the answer
  int64_t begun_us = 0;             // when its request got its first step, with a request's first token; else 0
};

struct StepBudget {
  int32_t tokens = 0;  // what running answers decode is computed even if it is more
  int64_t now_us = 0;
};

struct SchedulerStats {
  int32_t waiting = 0, running = 0;  // answers
  int32_t preempted = 0;       // of those that wait: who was pushed out, or waits for room beside its first answer
  int64_t waiting_tokens = 0;  // of prompts of those that wait
  int32_t blocks_used = 0, blocks_kept = 0, blocks = 0;
  int64_t prefix_tokens_asked = 0, prefix_tokens_found = 0;
  int64_t preemptions = 0;
};

// Errors, kInvalid: the request can never be answered, whatever else runs.
Result<> check_request(const SchedulerOptions& options, const Request& request);

class Scheduler {
 public:
  explicit Scheduler(const SchedulerOptions& options);

  // Errors: those of check_request; its id is in use.
  Result<> add(const std::shared_ptr<const Request>& request);
  // Ends all answers of the request; blocks are free at once. Nothing happens if it is over.
  void cancel(RequestId request);
  // Ends one answer, of which the caller wants no more. True if it was the request's last.
  bool finish(RequestId request, int32_t choice);

  // Ends everything, and forgets the steps under way: their results will not come, and what the cache holds is unknown.
  void abandon();

  // The next step; no items: nothing can be computed before a step under way is committed, or there is nothing to do.
  // Requests that are past their deadline end, in `progress`. At most two steps may be under way.
  StepBatch schedule(const StepBudget& budget, std::vector<Progress>* progress);
  // The results of the oldest step under way: an id and its log-probability per item; those of items that draw nothing
  // are not looked at. An id below 0: no token can be drawn from the logits, which ends the answer.
  // `tops`: what each item's request wants of Request::top_logprobs, `scored`: of StepItem::scores. Both are moved
  // from; none: no item wants any.
  void commit(const StepBatch& batch, std::span<const int32_t> ids, std::span<const float> logprobs,
              std::vector<Progress>* progress, std::span<std::vector<TokenLogprob>> tops = {},
              std::span<std::vector<ScoredToken>> scored = {});

  // Answers that are over and no longer part of any step, since the last call.
  std::vector<std::unique_ptr<AnswerState>> collect() { return std::exchange(over_, {}); }

  bool idle() const { return requests_.empty() && underway_.empty(); }
  SchedulerStats stats() const;
  const SchedulerOptions& options() const { return options_; }
  // Aborts with what is wrong.
  void check_integrity() const;

 private:
  struct Entry {
    std::shared_ptr<const Request> request;
    std::vector<std::unique_ptr<AnswerState>>
        answers;       // by choice; those after the first from the end of the prompt on
    int32_t left = 0;  // answers that are not over
  };
  // Who waits: by priority, then by key, then in order of arrival.
  using Queue = std::map<uint64_t, AnswerState*>;

  int32_t blocks_for(int64_t tokens) const;
  bool keys_are_shared(int32_t length) const;
  bool crosses(const AnswerState& answer) const;
  bool may_continue(const AnswerState& answer) const;
  // Positions of the prompt that are still to be scored begin at `scored`.
  static bool scores(const AnswerState& answer) { return answer.scored < answer.sequence.prompt_count - 1; }
  int32_t spare_rows() const;
  void end_late(int64_t now_us, std::vector<Progress>* progress);
  void make_way();
  bool fits(const AnswerState& answer) const;
  void start_waiting(AnswerState& answer, AnswerState::Place place);
  void start_running(AnswerState& answer);
  void leave(AnswerState& answer);
  AnswerState* next_waiting();
  bool admit(AnswerState& answer, int64_t now_us);
  void find_prefix(AnswerState& answer);
  // Adds up to `tokens` of the answer to the batch, as far as there are blocks; the number added. With `may_preempt`
  // those that rank behind it give way for one token.
  // Rows beyond one are taken from `spare_rows`.
  int32_t add_item(AnswerState& answer, int32_t tokens, bool may_preempt, int32_t* spare_rows, StepBatch& batch);
  bool make_room(AnswerState& answer, int32_t position, StepBatch& batch);
  void give_up(AnswerState& answer);
  void preempt(AnswerState& answer);
  void publish(AnswerState& answer);
  void fork(Entry& entry);
  std::unique_ptr<AnswerState> make_answer(const std::shared_ptr<const Request>& request, int32_t choice);
  void end(AnswerState& answer);
  bool bury_if_over(RequestId id);

  SchedulerOptions options_;
  BlockAllocator allocator_;
  std::unordered_map<RequestId, Entry> requests_;
  std::vector<AnswerState*> running_;  // by priority, then arrival
  std::map<int32_t, std::map<uint32_t, Queue>> waiting_;
  std::map<std::pair<int32_t, uint64_t>, AnswerState*> preempted_;  // wait too, before those of their priority
  std::map<uint32_t, int64_t> served_;                              // tokens by key, of keys that have requests
  std::map<uint32_t, int32_t> active_;                              // requests by key
  std::set<std::pair<int64_t, RequestId>> deadlines_;
  std::vector<std::unique_ptr<AnswerState>> leaving_;  // over, but part of a step under way
  std::vector<std::unique_ptr<AnswerState>> over_;
  std::vector<uint64_t> underway_;  // numbers of steps
  uint64_t steps_ = 0, arrivals_ = 0;
  SchedulerStats counted_;
};

}  // namespace bolide
