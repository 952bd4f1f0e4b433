// bolide synth: checkpoints of published shapes with random weights, for measuring where the weights cannot be had.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "cli/cli.h"
#include "cli/flags.h"
#include "measure/report.h"
#include "synth/write_folder.h"

namespace bolide::cli {
namespace {

constexpr const char* kFooter = R"(Examples:
  bolide synth --list                                 the architectures, their parameters and sizes
  bolide synth smollm2-135m -o smollm2-random         a Hugging Face folder in bf16
  bolide synth llama-3-8b --dtype fp8 --layers 4 -o folder
Without a file, wherever a command takes MODEL (NAME[:TYPE][:layers=N][:seed=N]):
  bolide bench synth:llama-3-8b:q4_k
  bolide run synth:smollm2-135m:layers=2 -p "Hello"
The answers mean nothing: the weights are random, of the scale that trained ones have. The same name, type and seed give
the same bytes everywhere. Types: bf16 f32 f16; fp8 (a scale a row, as compressed-tensors has it); int8 (a scale a row,
lm_head too); w4 (4 bits in groups of 128, lm_head int8; a folder has gptq in its place); gptq (the same groups as GPTQ
stores them, lm_head bf16); GGUF's block types. int8 and GGUF's types only without a file.)";

struct SynthFlags {
  std::string architecture, output, dtype = "bf16";
  int64_t layers = 0, seed = 0;
  int32_t threads = 0;
  bool list = false;
};

constexpr Option<SynthFlags> kSynthOptions[] = {
    {"dtype",
     &SynthFlags::dtype,
     {.choices = "bf16|f32|f16|fp8|int8|w4|gptq|q8_0|q6_k|q5_k|q4_k|q4_1|q4_0"},
     "the type of the weights"},
    {"layers", &SynthFlags::layers, {.min = 0, .max = 1000}, "only this many layers; 0: all"},
    {"seed", &SynthFlags::seed, {.min = 0}, "another seed, other weights"},
    {"threads", &SynthFlags::threads, {.min = 0, .max = 1024}, "threads; 0: the cores this cgroup may use"},
    {"list", &SynthFlags::list, {}, "show what can be made"},
};

// With --layers and --seed, so that the sizes shown are those of what would be made.
Result<> list(const SynthFlags& flags) {
  fmt::print("{:<13} {:>6} {:>12} {:>11} {:>11} {:>11}  {}\n", "name", "layers", "parameters", "bf16", "fp8", "w4",
             "what it is");
  for (const Architecture& architecture : architectures()) {
    SynthRequest request{.architecture = &architecture};
    request.layers = std::min(flags.layers, architecture.layers);
    std::string sizes;
    int64_t parameters = 0;
    for (const std::string_view type : {"bf16", "fp8", "w4"}) {
      BOLIDE_TRY(request.type, find_synth_type(type));
      BOLIDE_TRY(const auto weights, SynthWeights::create(request));
      parameters = weights->parameters();
      sizes += fmt::format(" {:>11}", format_bytes(static_cast<int64_t>(weights->byte_size())));
    }
    fmt::print("{:<13} {:>6} {:>10.2f} {}{}  {}\n", architecture.name, request.layer_count(),
               static_cast<double>(parameters) / (parameters < 1'000'000'000 ? 1e6 : 1e9),
               parameters < 1'000'000'000 ? "M" : "B", sizes, architecture.sentence);
  }
  return {};
}

Result<> synth(const SynthFlags& flags) {
  if (flags.list) return list(flags);
  if (flags.architecture.empty())
    return error(Code::kInvalid, "synth needs the name of an architecture; `bolide synth --list` shows them");
  SynthRequest request;
  BOLIDE_TRY(request.architecture, find_architecture(flags.architecture));
  BOLIDE_TRY(request.type, find_synth_type(flags.dtype));
  request.layers = flags.layers;
  request.seed = static_cast<uint64_t>(flags.seed);
  BOLIDE_TRY(check(request));
  if (flags.output.empty())
    return error(Code::kInvalid,
                 fmt::format("synth writes a folder: name it with -o; without a file, give {} as MODEL to bench, run, "
                             "profile, inspect or build",
                             to_string(request)));
  ProgressLine line;
  const auto show = [&](uint64_t done, uint64_t total) {
    line.show(fmt::format("writing {} of {}", format_bytes(static_cast<int64_t>(done)),
                          format_bytes(static_cast<int64_t>(total))));
  };
  const SynthProgress progress(show);
  BOLIDE_TRY(const SynthWritten written, write_synth_folder(request, flags.output, flags.threads, &progress));
  line.clear();
  fmt::print("{}: {} tensors in {} file{}, {}\n", flags.output, written.tensors, written.files,
             written.files == 1 ? "" : "s", format_bytes(static_cast<int64_t>(written.bytes)));
  return {};
}

}  // namespace

void add_synth(const Command& app, Outcome& outcome) {
  const Command command =
      app.add_command("synth", "Make a checkpoint of a published model's shape with random weights");
  auto flags = std::make_shared<SynthFlags>();
  command.footer(kFooter);
  std::string names;
  for (const Architecture& architecture : architectures())
    names += (names.empty() ? "" : "|") + std::string(architecture.name);
  command.add_option("architecture", flags->architecture, "a published model's shape: --list says more")
      .type_name(names);
  command.add_option("-o,--output", flags->output, "the folder to write; it must be empty or not there");
  const auto own = bind_options(*flags, kSynthOptions);
  command.add_options(own);
  command.callback([flags, &outcome] {
    if (const auto done = synth(*flags); !done) outcome.code = report(done.error());
  });
}

}  // namespace bolide::cli
