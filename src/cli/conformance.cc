// bolide conformance: the ONNX backend tests, by op and by opset.
#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>

#include "app/model_flags.h"
#include "cli/cli.h"
#include "cli/flags.h"
#include "device/device.h"
#include "eval/conformance.h"

namespace bolide::cli {
namespace {

constexpr const char* kFooter = R"(Examples:
  bolide conformance onnx/backend/test/data
  bolide conformance data --filter resize
  bolide conformance data --json > conformance.json)";

struct ConformanceFlags {
  std::string suite, filter, exclusions, skip_passes;
  std::string device = "cpu", cuda_libs;
  int32_t threads = 0;
  bool json = false;
};

constexpr Option<ConformanceFlags> kOptions[] = {
    {"filter", &ConformanceFlags::filter, {}, "only cases whose name contains this"},
    {"exclusions", &ConformanceFlags::exclusions, {}, "a file of lines 'CASE reason': failures that are known and why"},
    {"skip_passes",
     &ConformanceFlags::skip_passes,
     {},
     "passes to leave out, with commas between them; all: every one"},
    {"device", &ConformanceFlags::device, {}, "where nodes run that it has kernels for: cpu, cuda or cuda:N"},
    {"cuda_libs", &ConformanceFlags::cuda_libs, {}, "folder in which cuBLASLt is looked for first"},
    {"threads", &ConformanceFlags::threads, {.min = 0, .max = 1024}, "threads; 0: the cores this cgroup may use"},
    {"json", &ConformanceFlags::json, {}, "one JSON object on standard output"},
};

using CaseOutcome = ConformanceCase::Outcome;

struct Count {
  int passed = 0, failed = 0, excluded = 0;
  void add(CaseOutcome outcome) {
    ++(outcome == CaseOutcome::kPassed ? passed : outcome == CaseOutcome::kFailed ? failed : excluded);
  }
  int total() const { return passed + failed + excluded; }
  nlohmann::ordered_json to_json() const {
    return {{"total", total()}, {"passed", passed}, {"failed", failed}, {"excluded", excluded}};
  }
};

constexpr std::string_view kOutcomes[] = {"passed", "failed", "excluded"};

Result<int> conformance(const ConformanceFlags& flags) {
  BOLIDE_TRY(const auto device, make_cpu_device(flags.threads, std::nullopt));
  BOLIDE_TRY(const auto stream, device->make_stream());
  ModelConfigFlags where;
  where.device = flags.device, where.cuda_libs = flags.cuda_libs, where.threads = flags.threads;
  BOLIDE_TRY(const ModelOptions chosen, to_model_options(where));
  std::unique_ptr<Device> gpu;
  if (chosen.device == DeviceKind::kCuda) {
    BOLIDE_TRY(gpu, make_device(chosen));
  }
  ProgressLine line;
  const auto progress = [&](size_t done, size_t all) { line.show(fmt::format("{} of {} cases", done, all)); };
  BOLIDE_TRY(const auto cases,
             run_conformance(flags.suite, {flags.filter, flags.exclusions, split_names(flags.skip_passes), gpu.get()},
                             stream->workers(), progress));
  line.clear();
  if (cases.empty())
    return error(Code::kNotFound, fmt::format("--filter {:.100}: no case's name has it", flags.filter));
  Count sum;
  std::map<std::string, Count> by_op;
  std::map<int64_t, Count> by_opset;
  for (const ConformanceCase& one : cases) {
    sum.add(one.outcome);
    for (const std::string& op : one.ops) by_op[op].add(one.outcome);
    by_opset[one.opset].add(one.outcome);
  }
  if (flags.json) {
    nlohmann::ordered_json out = sum.to_json();
    for (const auto& [op, count] : by_op) out["by_op"][op] = count.to_json();
    for (const auto& [opset, count] : by_opset) out["by_opset"][fmt::format("{}", opset)] = count.to_json();
    for (const ConformanceCase& one : cases)
      out["cases"].push_back({{"kind", one.kind},
                              {"name", one.name},
                              {"opset", one.opset},
                              {"outcome", kOutcomes[static_cast<size_t>(one.outcome)]},
                              {"why", one.why},
                              {"gpu_nodes", one.on_gpu},
                              {"ms", one.seconds * 1e3}});
    std::cout << out.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << std::endl;
  } else {
    for (const ConformanceCase& one : cases)
      if (one.outcome != CaseOutcome::kPassed)
        fmt::print("{} {}/{}: {}\n", one.outcome == CaseOutcome::kFailed ? "FAIL" : "excl", one.kind, one.name,
                   one.why);
    fmt::print("{} of {} cases pass, {} fail, {} are excluded\n", sum.passed, sum.total(), sum.failed, sum.excluded);
    if (gpu != nullptr)
      fmt::print("{} of them have nodes on the GPU\n",
                 std::ranges::count_if(cases, [](const ConformanceCase& one) { return one.on_gpu > 0; }));
  }
  return sum.failed == 0 ? 0 : 1;
}

}  // namespace

void add_conformance(const Command& app, Outcome& outcome) {
  const Command command = app.add_command("conformance", "Run the ONNX backend tests");
  auto flags = std::make_shared<ConformanceFlags>();
  command.footer(kFooter);
  command.add_option("suite", flags->suite, "the folder that has node, simple, pytorch-converted ...").required();
  const auto own = bind_options(*flags, kOptions);
  command.add_options(own);
  command.callback([flags, &outcome] {
    const auto done = conformance(*flags);
    outcome.code = done ? *done : report(done.error());
  });
}

}  // namespace bolide::cli
