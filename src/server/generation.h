// Generation: one HTTP request whose answers an engine makes: from the engine's progress to a response or a stream.
//
// Thread rules: the engine's thread only hands its progress over; all else runs on the exchange's thread (post).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "server/answer_format.h"
#include "server/http.h"
#include "server/metrics.h"
#include "server/openai_response.h"
#include "server/request_log.h"
#include "server/served_model.h"
#include "server/tool_calls.h"
#include "server/wishes.h"

namespace bolide::server {

struct GenerationJob {
  std::shared_ptr<const ServedModel> model;
  ResponseHead head;
  Wishes wishes;
  std::vector<Request> requests;          // one a prompt; answers are numbered through all of them
  std::vector<std::string> echoes;        // text in front of the answers to each prompt; empty: none. Its tokens come
                                          // along if the wishes have prompt_logprobs
  std::shared_ptr<ModelMetrics> metrics;  // may be null
  ToolFormat tools = ToolFormat::kNone;   // how the model calls those of the request; kNone: its answers are text
  std::string route;
  std::shared_ptr<RequestRecord> record;       // may be null
  std::shared_ptr<const AnswerFormat> format;  // null: OpenAI's
  std::shared_ptr<void> while_it_runs;         // let go when the request is over
};

// Submits the requests; the exchange gets the answers, or why there are none. The client's going cancels them.
void start_generation(std::shared_ptr<HttpExchange> exchange, GenerationJob job);

}  // namespace bolide::server
