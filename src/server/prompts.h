// From a validated request to what an engine gets: ids of the prompt, sampling with the model's defaults, limits.
//
// Thread rules: pure functions over models that do not change.
#pragma once

#include <vector>

#include "server/openai_request.h"
#include "server/served_model.h"

namespace bolide::server {

// Errors of these: kInvalid; `code` becomes "context_length_exceeded" where that is what is wrong.
Result<std::vector<int32_t>> chat_ids(const ServedModel& model, const ChatRequest& request, std::string* code);
Result<std::vector<int32_t>> prompt_ids(const ServedModel& model, const Prompt& prompt, std::string* code);
Result<std::vector<int32_t>> text_ids(const ServedModel& model, std::string_view text, bool add_special,
                                      std::string* code);

// What of the wishes this model does not have. `param` becomes the field's name.
Result<> check_wishes(const ServedModel& model, const Wishes& wishes, std::string* param);

// `tokens_max`: of each answer, if the request does not say; 0: as many as the context holds. `seed`: of a request that
// has none. What the request leaves open is as the model's generation_config.json has it, and temperature 1 without
// such. Errors, kInvalid: min_tokens that cannot be had, those of make_logit_biases; `param` becomes the field's name.
Result<Request> make_request(const ServedModel& model, const Wishes& wishes, std::vector<int32_t> prompt,
                             int32_t tokens_max, uint64_t seed, std::string* param);

}  // namespace bolide::server
