// Messages of gRPC: the first byte picks which. What is understood of an inference is matched with a model, and
// answered with what it was given.
#include <google/protobuf/stubs/logging.h>

#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "server/grpc/grpc_reflection.h"
#include "server/grpc/grpc_request.h"
#include "server/grpc/grpc_response.h"

namespace {

using namespace bolide;          // NOLINT(google-build-using-namespace)
using namespace bolide::server;  // NOLINT(google-build-using-namespace)

void infer(std::string_view bytes, const RequestLimits& limits) {
  static const std::vector<TensorPort> ports = {{"x", DType::kF32, std::vector<int64_t>{-1, 2}},
                                                {"text_input", DType::kString, std::vector<int64_t>{1}}};
  auto message = parse_infer_message(bytes, limits);
  if (!message || !message->request) return;
  InferRequest& request = *message->request;
  for (const bool streams : {false, true}) (void)text_of_infer(request, limits, streams).has_value();
  (void)choose_outputs(request, ports).has_value();
  std::vector<OutputTensor> outputs;
  for (const InferInput& input : request.inputs) outputs.push_back({input.name, &input.tensor, true});
  const KserveHead head{message->model, message->id};
  // What a request can say can be said in an answer.
  if (!infer_dialect()->tensors(head, outputs)) std::abort();
  if (!stream_dialect(message->id, message->empty_final)->tensors(head, outputs)) std::abort();
  (void)match_inputs(std::move(request.inputs), ports).has_value();
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  google::protobuf::SetLogHandler(nullptr);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const RequestLimits limits;
  switch (data[0] % 8) {
    case 1: (void)parse_model_name_message(bytes, limits).has_value(); break;
    case 2: (void)parse_index_message(bytes, limits).has_value(); break;
    case 3: (void)parse_change_message(bytes, true, limits).has_value(); break;
    case 4: (void)parse_change_message(bytes, false, limits).has_value(); break;
    case 5: (void)parse_health_message(bytes, limits).has_value(); break;
    case 6: (void)reflect(bytes).has_value(); break;
    default: infer(bytes, limits); break;
  }
  return 0;
}
