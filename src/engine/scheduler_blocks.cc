// The scheduler's blocks of the cache: who gets them, who gives them back, which are known as prefixes.
#include "engine/scheduler.h"

namespace bolide {

int32_t Scheduler::blocks_for(int64_t tokens) const {
  return static_cast<int32_t>((tokens + options_.block_tokens - 1) / options_.block_tokens);
}

// The blocks go back, the last first: what begins a prefix is kept longest.
void Scheduler::give_up(AnswerState& answer) {
  Sequence& sequence = answer.sequence;
  for (; !sequence.blocks.empty(); sequence.blocks.pop_back()) allocator_.give(sequence.blocks.back());
  sequence.computed = answer.committed = answer.published = 0;
  ++answer.epoch;
}

// Dynamic rope rotates by the length at hand: keys of long sequences are no one else's.
bool Scheduler::keys_are_shared(int32_t length) const {
  return options_.prefix_cache && (options_.rope_dynamic == 0 || length <= options_.rope_dynamic);
}

void Scheduler::find_prefix(AnswerState& answer) {
  Sequence& sequence = answer.sequence;
  const bool long_rope = options_.rope_switch > 0 && sequence.size() > options_.rope_switch;
  answer.prefix = prefix_root(options_.secret + (long_rope ? 1 : 0), answer.request->cache_salt);
  if (!keys_are_shared(sequence.size())) return;
  const int32_t P = options_.block_tokens;
  const std::span<const int32_t> tokens = sequence.tokens;
  // The last token is always computed: the next is drawn from its logits. So is what is still to be scored.
  const int32_t end = scores(answer) ? answer.scored + 1 : sequence.size();
  while (sequence.computed + P < end) {
    const PrefixKey key =
        prefix_next(answer.prefix, tokens.subspan(static_cast<size_t>(sequence.computed), static_cast<size_t>(P)));
    const BlockId block = allocator_.find(key);
    if (block == kNoBlock) break;
    sequence.blocks.push_back(block);
    sequence.computed += P;
    answer.prefix = key;
    ++answer.published;
  }
  answer.committed = sequence.computed;
  sequence.rope_length = sequence.size();
}

void Scheduler::publish(AnswerState& answer) {
  const Sequence& sequence = answer.sequence;
  if (!keys_are_shared(sequence.rope_length)) return;
  const int32_t P = options_.block_tokens;
  const int32_t known = std::min(answer.committed, sequence.prompt_count + answer.drawn);
  for (; (answer.published + 1) * P <= known; ++answer.published) {
    const auto at = static_cast<size_t>(answer.published);
    answer.prefix = prefix_next(
        answer.prefix, std::span(sequence.tokens).subspan(at * static_cast<size_t>(P), static_cast<size_t>(P)));
    if (!allocator_.published(sequence.blocks[at])) allocator_.publish(sequence.blocks[at], answer.prefix);
  }
}

// A block of its own for the token at `position`, which must be the next one or in the last block.
bool Scheduler::make_room(AnswerState& answer, int32_t position, StepBatch& batch) {
  std::vector<BlockId>& blocks = answer.sequence.blocks;
  const auto at = static_cast<size_t>(position / options_.block_tokens);
  if (at < blocks.size() && allocator_.writable(blocks[at])) return true;
  auto block = allocator_.take();
  if (!block) return false;
  if (at == blocks.size()) {
    blocks.push_back(*block);
    return true;
  }
  batch.copies.push_back({blocks[at], *block});
  allocator_.give(blocks[at]);
  blocks[at] = *block;
  return true;
}

}  // namespace bolide
