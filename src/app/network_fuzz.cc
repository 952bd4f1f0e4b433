// Any bytes as an ONNX model that is then run on small random inputs, by reference kernels and by prepared ones: every
// op's checks stand between it and memory.
#include <cstddef>
#include <cstdint>

#include "app/network.h"

namespace {

constexpr size_t kMemoryMax = 256 << 20;  // of values: models may ask for more, and are refused

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace bolide;
  static const auto device = make_cpu_device(1, std::nullopt);
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
  CachingPool pool;
  pool.set_limit(kMemoryMax);
  if (const auto plain = Interpreter::make(program->graph)) (void)plain->run(inputs, workers, pool);
  const PrepareSettings settings{.device = (*device)->info(), .workers = workers};
  if (const auto prepared = Interpreter::make_and_drop(program->graph, settings))
    (void)prepared->run(std::move(inputs), workers, pool);
  return 0;
}
