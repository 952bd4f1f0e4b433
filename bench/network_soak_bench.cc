// Runs an ONNX model many times with shapes that change, and says what memory the process has as it goes: it must stay
// flat. Usage: bolide_network_soak_bench MODEL RUNS SHAPES...
// SHAPES are lists of one shape an input, in the model's order, with commas between them; they are taken at random.
// "1x512,2x1x128,": an input without a shape is as the model declares it. Values are random, made once a list.
#include <fmt/format.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <random>

#include "app/network.h"
#include "measure/report.h"

namespace bolide {
namespace {

Result<> soak(const std::string& path, int64_t runs, std::span<char*> lists) {
  BOLIDE_TRY(NetworkSession network, NetworkSession::open(path, {}));
  std::vector<std::vector<AnyValue>> inputs;
  for (const std::string_view list : lists) {
    std::vector<AnyValue> values(network.inputs().size());
    std::string_view rest = list;
    for (size_t i = 0; i < values.size(); ++i) {
      const size_t comma = rest.find(',');
      const std::string_view shape = rest.substr(0, comma);
      rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
      BOLIDE_TRY(values[i],
                 network_input(network.inputs()[i], shape.empty() ? "random" : fmt::format("random:{}", shape), 1));
    }
    inputs.push_back(std::move(values));
  }
  std::mt19937_64 random(1);
  nlohmann::ordered_json points = nlohmann::ordered_json::array();
  constexpr int64_t kPoints = 10;
  for (int64_t i = 0; i <= runs; ++i) {
    if (i % std::max<int64_t>(runs / kPoints, 1) == 0) {
      BOLIDE_TRY(const ProcessMemory memory, read_process_memory());
      points.push_back({{"runs", i}, {"resident_bytes", memory.resident_bytes}, {"peak_bytes", memory.peak_bytes}});
      fmt::print(stderr, "{} runs: {}\n", i, format_bytes(memory.resident_bytes));
    }
    BOLIDE_TRY(network.run(inputs[random() % inputs.size()]));
  }
  fmt::print("{}\n", nlohmann::ordered_json{{"model", path},
                                            {"machine", network.device().name},
                                            {"shapes", std::vector<std::string>(lists.begin(), lists.end())},
                                            {"values_bytes_max", network.pool().bytes_in_use_max()},
                                            {"memory", points}}
                         .dump());
  return {};
}

}  // namespace
}  // namespace bolide

int main(int argc, char** argv) {
  if (argc < 4) {
    fmt::print(stderr, "usage: {} MODEL RUNS SHAPES...\n", argv[0]);
    return 2;
  }
  const auto done = bolide::soak(argv[1], std::atoll(argv[2]), std::span(argv + 3, static_cast<size_t>(argc - 3)));
  if (!done) fmt::print(stderr, "{}\n", done.error().text);
  return done ? 0 : 1;
}
