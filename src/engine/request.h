// Request: what somebody asks of the engine. Made by validation, immutable afterwards.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "engine/sequence.h"

namespace bolide {

using RequestId = uint64_t;
constexpr int64_t kNoDeadline = std::numeric_limits<int64_t>::max();

struct Request {
  RequestId id = 0;
  std::vector<int32_t> prompt;  // ids; at least one
  SamplingParams sampling;
  int32_t tokens_max = 1;             // of each answer; at least 1
  std::vector<int32_t> stop_ids;      // ends an answer, which does not contain it
  int32_t choices = 1;                // answers to the same prompt
  int32_t top_logprobs = 0;           // likeliest tokens that are wanted with each token
  bool prompt_logprobs = false;       // those of the prompt's tokens are wanted, from the second on
  int32_t priority = 0;               // lower goes first
  int64_t deadline_us = kNoDeadline;  // on the clock of Scheduler::schedule
  uint32_t key = 0;                   // who asks: those who wait get equal shares
  uint64_t cache_salt = 0;            // only requests of the same salt share cached prefixes
};

}  // namespace bolide
