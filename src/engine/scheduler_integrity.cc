// What must hold of a scheduler between two calls: for tests.
#include <algorithm>
#include <utility>

#include "engine/scheduler.h"

namespace bolide {

void Scheduler::check_integrity() const {
  allocator_.check_integrity();
  std::unordered_map<BlockId, int32_t> references;
  std::map<uint32_t, int32_t> active;
  size_t running = 0, waiting = 0, preempted = 0;
  int64_t waiting_tokens = 0;
  for (const auto& [id, entry] : requests_) {
    ++active[entry.request->key];
    int32_t left = entry.request->choices - static_cast<int32_t>(entry.answers.size());
    for (const auto& answer : entry.answers) {
      const Sequence& s = answer->sequence;
      left += answer->over ? 0 : 1;
      running += answer->place == AnswerState::Place::kRunning ? 1 : 0;
      waiting += answer->place == AnswerState::Place::kWaiting ? 1 : 0;
      preempted += answer->place == AnswerState::Place::kPreempted ? 1 : 0;
      if (answer->place == AnswerState::Place::kWaiting || answer->place == AnswerState::Place::kPreempted)
        waiting_tokens += s.size();
      BOLIDE_CHECK((answer->place == AnswerState::Place::kNowhere) == answer->over, "answer {} of {} is nowhere",
                   answer->choice, id);
      BOLIDE_CHECK(answer->place == AnswerState::Place::kRunning || s.blocks.empty(), "answer {} of {} holds blocks",
                   answer->choice, id);
      BOLIDE_CHECK(static_cast<int32_t>(s.blocks.size()) >= blocks_for(s.computed), "{} blocks for {} tokens",
                   s.blocks.size(), s.computed);
      BOLIDE_CHECK(answer->over || s.size() == s.prompt_count + answer->drawn + answer->draws,
                   "{} tokens, {} of the prompt, {} drawn, {} under way", s.size(), s.prompt_count, answer->drawn,
                   answer->draws);
      BOLIDE_CHECK(answer->committed <= s.computed && answer->underway <= static_cast<int32_t>(underway_.size()),
                   "{} committed of {}", answer->committed, s.computed);
      for (const BlockId block : s.blocks) ++references[block];
    }
    BOLIDE_CHECK(left == entry.left && left > 0, "{} answers left of {}, counted {}", left, id, entry.left);
  }
  BOLIDE_CHECK(running == running_.size() && preempted == preempted_.size(), "{} run, {} listed", running,
               running_.size());
  BOLIDE_CHECK(
      static_cast<int32_t>(waiting + preempted) == counted_.waiting && waiting_tokens == counted_.waiting_tokens,
      "{} wait, {} counted", waiting + preempted, counted_.waiting);
  BOLIDE_CHECK(static_cast<int32_t>(running_.size()) <= options_.sequences_max, "{} run", running_.size());
  const auto rank = [](const AnswerState* answer) { return std::pair(answer->request->priority, answer->arrival); };
  BOLIDE_CHECK(std::is_sorted(running_.begin(), running_.end(),
                              [&](const AnswerState* a, const AnswerState* b) { return rank(a) < rank(b); }),
               "those that run are not in order");
  BOLIDE_CHECK(active == active_ && served_.size() == active_.size(), "keys are counted wrongly");
  for (BlockId block = 0; block < allocator_.block_count(); ++block) {
    const auto it = references.find(block);
    BOLIDE_CHECK(allocator_.references(block) == (it == references.end() ? 0 : it->second),
                 "block {} has {} references", block, allocator_.references(block));
  }
  for (const auto& answer : leaving_) BOLIDE_CHECK(answer->over && answer->underway > 0, "a dead answer is kept");
}

}  // namespace bolide
