// bolide compare: an ONNX model beside another one, or beside itself without graph passes, value by value.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <nlohmann/json.hpp>

#include "base/utf8.h"
#include "cli/cli.h"
#include "cli/flags.h"
#include "cli/network.h"
#include "eval/network_compare.h"
#include "measure/report.h"

namespace bolide::cli {
namespace {

using nlohmann::ordered_json;

constexpr const char* kFooter = R"(Examples:
  bolide compare model.onnx --against quantised.onnx --input x=values.npy
  bolide compare model.onnx --shape ids=1x128          random inputs; against itself without graph passes
  bolide compare model.onnx --against other.onnx --json > difference.json

Without --against the model is compared with itself without graph passes: what differs is what was fused. Values are matched by the names of outputs and of nodes.)";

constexpr size_t kShownMax = 20;  // nodes in text

struct CompareFlags {
  std::string path, against;
  std::vector<std::string> inputs, shapes, dims;
  int32_t threads = 0, seed = 0;
  std::string device = "cpu", cuda_libs, dtype = "auto", isa;
  bool json = false;
};

constexpr Option<CompareFlags> kOptions[] = {
    {"against", &CompareFlags::against, {}, "the .onnx file to compare with; empty: MODEL itself without graph passes"},
    {"threads", &CompareFlags::threads, {.min = 0, .max = 1024}, "threads; 0: the cores this cgroup may use"},
    {"device", &CompareFlags::device, {}, "where MODEL runs: auto, cpu, cuda or cuda:N; the other one runs on the CPU"},
    {"cuda_libs", &CompareFlags::cuda_libs, {}, "folder in which cuBLASLt is looked for first"},
    {"dtype",
     &CompareFlags::dtype,
     {.choices = "auto|f32|bf16|f16"},
     "what products of f32 are multiplied in, by MODEL, not by what it is compared with"},
    {"isa",
     &CompareFlags::isa,
     {.choices = "|scalar|avx2|avx512|vnni|amx"},
     "MODEL uses no instruction set above this one; empty: the best there is"},
    {"seed", &CompareFlags::seed, {.min = 0}, "of random inputs"},
    {"json", &CompareFlags::json, {}, "one JSON object on standard output, with all nodes"},
};

ordered_json to_json(const ComparedValue& value, bool is_node) {
  ordered_json out = {{"name", value.name}};
  if (is_node) out["operator"] = value.op;
  out["type"] = value.type;
  const ValueDifference& d = value.difference;
  if (!d.unlike.empty()) {
    out["unlike"] = d.unlike;
  } else {  // JSON has no infinity: null
    const auto number = [](double x) { return std::isfinite(x) ? ordered_json(x) : ordered_json(nullptr); };
    out["max_abs"] = number(d.max_abs), out["relative_l2"] = number(d.relative_l2), out["cosine"] = number(d.cosine);
  }
  if (is_node) out["us"] = value.us, out["reference_us"] = value.reference_us;
  return out;
}

bool differs(const ComparedValue& value) { return value.difference.max_abs > 0 || !value.difference.unlike.empty(); }

// Those that have no numbers are the worst.
double badness(const ComparedValue& value) {
  return value.difference.unlike.empty() ? value.difference.relative_l2 : INFINITY;
}

std::string difference_text(const ValueDifference& d) {
  if (!d.unlike.empty()) return d.unlike;
  return fmt::format("max abs {:.3g}, relative L2 {:.3g}, cosine {:.9f}", d.max_abs, d.relative_l2, d.cosine);
}

void print_text(const NetworkComparison& comparison, const std::string& against) {
  fmt::print("against {}\n", printable(against));
  for (const ComparedValue& output : comparison.outputs)
    fmt::print("{} {}: {}\n", printable(output.name), output.type, difference_text(output.difference));
  std::vector<const ComparedValue*> worst;
  for (const ComparedValue& node : comparison.nodes)
    if (differs(node)) worst.push_back(&node);
  fmt::print("{} values of nodes were compared, {} differ; {} nodes are only in the first, {} only in the second\n",
             comparison.nodes.size(), worst.size(), comparison.nodes_only_here, comparison.nodes_only_there);
  if (!worst.empty()) {
    fmt::print("the first: {} ({}), {}\n", printable(worst[0]->name), worst[0]->op,
               difference_text(worst[0]->difference));
    std::stable_sort(worst.begin(), worst.end(),
                     [](const auto* a, const auto* b) { return badness(*a) > badness(*b); });
    worst.resize(std::min(worst.size(), kShownMax));
    Table table({{"node"}, {"operator"}, {"type"}, {"difference"}, {"us", 1}, {"reference_us", 1}});
    for (const ComparedValue* node : worst)
      table.add({node->name, node->op, node->type, difference_text(node->difference), node->us, node->reference_us});
    fmt::print("{}", printable(table.to_text(), true));
  }
  fmt::print("{:.2f} ms, {:.2f} ms the other\n", comparison.ms, comparison.reference_ms);
}

Result<> compare(const CompareFlags& flags) {
  NetworkFlags given;
  given.path = flags.path, given.inputs = flags.inputs, given.shapes = flags.shapes, given.dims = flags.dims;
  given.seed = static_cast<uint64_t>(flags.seed);
  given.device = flags.device, given.cuda_libs = flags.cuda_libs;
  given.threads = flags.threads, given.dtype = flags.dtype, given.isa = flags.isa;
  BOLIDE_TRY(const NetworkSettings settings, network_settings(given));
  BOLIDE_TRY(NetworkSession network, NetworkSession::open(flags.path, settings));
  const auto open_reference = [&]() -> Result<NetworkSession> {
    if (!flags.against.empty()) return NetworkSession::open(flags.against, {.threads = flags.threads});
    return NetworkSession::open(flags.path, {.threads = 1, .prepare = false, .skip_passes = {"all"}});
  };
  BOLIDE_TRY(NetworkSession reference, open_reference());
  BOLIDE_TRY(const std::vector<AnyValue> inputs, network_inputs(network, given, true));
  BOLIDE_TRY(const NetworkComparison comparison, compare_networks(network, reference, inputs));
  const std::string against = flags.against.empty() ? "itself without graph passes, on one thread" : flags.against;
  if (!flags.json) {
    print_text(comparison, against);
    return {};
  }
  ordered_json out = {{"model", flags.path},
                      {"against", against},
                      {"ms", comparison.ms},
                      {"reference_ms", comparison.reference_ms},
                      {"nodes_only_here", comparison.nodes_only_here},
                      {"nodes_only_there", comparison.nodes_only_there},
                      {"outputs", ordered_json::array()},
                      {"nodes", ordered_json::array()}};
  for (const ComparedValue& output : comparison.outputs) out["outputs"].push_back(to_json(output, false));
  for (const ComparedValue& node : comparison.nodes) out["nodes"].push_back(to_json(node, true));
  std::cout << out.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << std::endl;
  return {};
}

}  // namespace

void add_compare(const Command& app, Outcome& outcome) {
  const Command command = app.add_command("compare", "Run two ONNX models on the same inputs and compare their values");
  auto flags = std::make_shared<CompareFlags>();
  command.footer(kFooter);
  command.add_option("model", flags->path, "an .onnx file").required();
  const auto own = bind_options(*flags, kOptions);
  command.add_options(own);
  command
      .add_option("--input", flags->inputs,
                  "NAME=FILE.npy, .npz, .json, .jpg or .png, a list or random (may be repeated)")
      .repeated();
  command.add_option("--shape", flags->shapes, "NAME=1x3x224x224 for random inputs (may be repeated)").repeated();
  command.add_option("--dim", flags->dims, "NAME=N for a dim that the inputs leave open (may be repeated)").repeated();
  command.callback([flags, &outcome] {
    const auto done = compare(*flags);
    outcome.code = done ? 0 : report(done.error());
  });
}

}  // namespace bolide::cli
