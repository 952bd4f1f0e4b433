// Bodies of KServe's routes: the first byte picks the route, the next two say how much of an inference is JSON. What is
// understood is matched with a model, and answered with what it was given.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "server/kserve_models.h"
#include "server/kserve_request.h"
#include "server/kserve_response.h"

namespace {

using namespace bolide;          // NOLINT(google-build-using-namespace)
using namespace bolide::server;  // NOLINT(google-build-using-namespace)

void answer(Result<InferRequest> request, const RequestLimits& limits, const std::vector<TensorPort>& ports) {
  if (!request) return;
  (void)text_of_infer(*request, limits).has_value();
  (void)choose_outputs(*request, ports).has_value();
  std::vector<OutputTensor> outputs;
  for (const InferInput& input : request->inputs)
    outputs.push_back({input.name, &input.tensor, is_float(input.tensor.dtype())});  // which may be NaN
  const auto response = infer_response({"m", request->id}, outputs);
  // What a body can say can be said in an answer.
  if (!response) std::abort();
  (void)match_inputs(std::move(request->inputs), ports).has_value();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 3) return 0;
  const uint64_t json_bytes = data[1] | data[2] << 8;
  const std::string_view body(reinterpret_cast<const char*>(data) + 3, size - 3);
  const RequestLimits limits;
  const std::vector<TensorPort> ports = {{"x", DType::kF32, std::vector<int64_t>{-1, 2}},
                                         {"text_input", DType::kString, std::vector<int64_t>{1}}};
  switch (data[0] % 7) {
    case 0: answer(parse_infer_request(body, std::nullopt, limits), limits, ports); break;
    case 1: answer(parse_infer_request(body, json_bytes, limits), limits, ports); break;
    case 2: (void)raw_infer_request(body, {ports[0]}, limits).has_value(); break;
    case 3: (void)parse_generate_request(body, limits).has_value(); break;
    case 4: (void)parse_index_request(body, limits).has_value(); break;
    default: (void)check_change_request(body, data[0] % 7 == 5, limits).has_value(); break;
  }
  return 0;
}
