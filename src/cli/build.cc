// bolide build: plan and pack once, into a file that is mapped and ready.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>

#include "app/engine.h"
#include "cli/cli.h"
#include "cli/flags.h"
#include "measure/report.h"

namespace bolide::cli {
namespace {

constexpr const char* kFooter = R"(Examples:
  bolide build model.gguf -o model.engine
  bolide run model.engine -p "Hello"
An engine opened on another processor is replanned and repacked. It is a cache: keep the checkpoint, from which an
engine for another kind of device (--device) is made.)";

struct BuildFlags {
  ModelConfigFlags model;
  std::string path, output;
  bool json = false;
};

Result<> build(const BuildFlags& flags) {
  BOLIDE_TRY(const ModelOptions options, to_model_options(flags.model));
  ProgressLine line;
  const auto show = [&](PackProgress progress) {
    line.show(fmt::format("packing weights {}/{}", progress.done, progress.total));
  };
  const FunctionRef<void(PackProgress)> progress(show);
  BOLIDE_TRY(const EngineReport report, build_engine(flags.path, flags.output, options, &progress));
  line.clear();
  if (flags.json)
    std::cout << nlohmann::ordered_json{{"engine", flags.output}, {"weights", report.weights}, {"bytes", report.bytes}}
                     .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)
              << std::endl;
  else
    fmt::print("{}: {} weights, {}\n", flags.output, report.weights, format_bytes(static_cast<int64_t>(report.bytes)));
  return {};
}

}  // namespace

void add_build(const Command& app, Outcome& outcome) {
  const Command command = app.add_command("build", "Plan and pack a model once into an engine that starts at once");
  auto flags = std::make_shared<BuildFlags>();
  command.footer(kFooter);
  command.add_option("model", flags->path, "a GGUF file, a Hugging Face folder or synth:NAME").required();
  command.add_option("-o,--output", flags->output, "the engine to write").required();
  command.add_flag("--json", flags->json, "one JSON object on standard output");
  const auto model = bind_options(flags->model, kModelOptions);
  command.add_options(model, "Model");
  command.callback([flags, &outcome] {
    if (const auto done = build(*flags); !done) outcome.code = report(done.error());
  });
}

}  // namespace bolide::cli
