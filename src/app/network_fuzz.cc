// Any bytes as an ONNX model that is then run on small random inputs: every op's checks stand between it and memory.
#include <cstddef>
#include <cstdint>

#include "app/network.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace bolide;
  const Bytes bytes(reinterpret_cast<const std::byte*>(data), size);
  auto program = import_onnx(bytes, nullptr, {}, "fuzz");
  if (!program) return 0;
  std::vector<AnyValue> inputs;
  for (const auto& port : program->inputs) {
    int64_t elements = 1;
    for (const OnnxDim& dim : port.type.dims.value_or(std::vector<OnnxDim>{}))
      if (__builtin_mul_overflow(elements, dim.value.value_or(1), &elements) || elements > 4096) return 0;
    auto value = network_input(port, "random", 1);
    if (!value) return 0;
    inputs.push_back(*std::move(value));
  }
  Workers workers(1);
  if (!run_passes(*program, workers, {})) return 0;
  const auto interpreter = Interpreter::make(program->graph);
  if (!interpreter) return 0;
  (void)interpreter->run(std::move(inputs), workers);
  return 0;
}
