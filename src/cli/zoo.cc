// bolide zoo: ONNX files of published architectures with random weights, for measuring where nothing can be downloaded.
#include "zoo/zoo.h"

#include <fmt/format.h>

#include "cli/cli.h"
#include "cli/flags.h"
#include "measure/report.h"

namespace bolide::cli {
namespace {

constexpr const char* kFooter = R"(Examples:
  bolide zoo --list                                   what can be made, with parameters and sizes
  bolide zoo resnet-50 -o resnet-50.onnx
  bolide zoo bert-base --layers 2 --seed 7 -o bert.onnx
  bolide bench bert.onnx --shape input_ids=1x128 --shape attention_mask=1x128 --shape token_type_ids=1x128
The answers mean nothing: the weights are random, of a scale at which activations stay of order 1. The same name, sizes,
opset and seed give the same bytes everywhere. Batch is symbolic, and the text models' sequence. A file beyond 2 GB has
its weights in a second one beside it, FILE.data.)";

struct ZooFlags {
  std::string name, output;
  int64_t seed = 0, opset = 17, layers = 0, image = 0, frames = 0;
  bool external = false, list = false;

  ZooOptions options() const {
    return {.seed = static_cast<uint64_t>(seed), .opset = opset, .layers = layers, .image = image, .frames = frames};
  }
};

constexpr Option<ZooFlags> kZooOptions[] = {
    {"seed", &ZooFlags::seed, {.min = 0}, "another seed, other weights"},
    {"opset", &ZooFlags::opset, {.min = kZooOpsetMin, .max = kZooOpsetMax}, "version of the operators"},
    {"layers", &ZooFlags::layers, {.min = 0, .max = 1000}, "transformers: only this many layers; 0: all"},
    {"image", &ZooFlags::image, {.min = 0, .max = 4096}, "side of the image; 0: the model's own"},
    {"frames", &ZooFlags::frames, {.min = 0, .max = 3000}, "Whisper: length of the spectrogram; 0: 30 s, 3000"},
    {"external", &ZooFlags::external, {}, "weights in a second file"},
    {"list", &ZooFlags::list, {}, "show what can be made"},
};

Result<> list() {
  fmt::print("{:<21} {:>12} {:>11} {:>6}  {}\n", "name", "parameters", "weights", "nodes", "what it is");
  for (const ZooEntry& entry : zoo()) {
    BOLIDE_TRY(const ZooModel model, make_zoo_model(entry.name));
    fmt::print("{:<21} {:>10.2f} M {:>11} {:>6}  {}\n", entry.name, static_cast<double>(model.parameters) / 1e6,
               format_bytes(static_cast<int64_t>(model.file.weight_bytes())), model.file.nodes.size(), entry.sentence);
  }
  return {};
}

Result<> zoo(const ZooFlags& flags) {
  if (flags.list) return list();
  if (flags.name.empty())
    return error(Code::kInvalid, "zoo needs the name of a network; `bolide zoo --list` shows them");
  BOLIDE_TRY(const ZooModel model, make_zoo_model(flags.name, flags.options()));
  if (flags.output.empty()) return error(Code::kInvalid, "zoo writes a file: name it with -o, as in -o model.onnx");
  if (!flags.output.ends_with(".onnx"))
    return error(Code::kInvalid, fmt::format("-o {}: expected a name that ends in .onnx", flags.output));
  ProgressLine line;
  const auto show = [&](uint64_t done, uint64_t total) {
    line.show(fmt::format("writing {} of {}", format_bytes(static_cast<int64_t>(done)),
                          format_bytes(static_cast<int64_t>(total))));
  };
  const OnnxWriteProgress progress(show);
  BOLIDE_TRY(const OnnxWritten written, write_onnx(model.file, flags.output, {.external = flags.external}, &progress));
  line.clear();
  fmt::print("{}: {} nodes, {:.2f} M parameters, {}{}\n", flags.output, model.file.nodes.size(),
             static_cast<double>(model.parameters) / 1e6, format_bytes(static_cast<int64_t>(written.bytes)),
             written.data.empty() ? ""
                                  : fmt::format("; weights in {}, {}", written.data.string(),
                                                format_bytes(static_cast<int64_t>(written.external_bytes))));
  return {};
}

}  // namespace

void add_zoo(const Command& app, Outcome& outcome) {
  const Command command = app.add_command("zoo", "Write an ONNX file of a published architecture with random weights");
  auto flags = std::make_shared<ZooFlags>();
  command.footer(kFooter);
  std::string names;
  for (const ZooEntry& entry : bolide::zoo()) names += (names.empty() ? "" : "|") + std::string(entry.name);
  command.add_option("name", flags->name, "a network: --list says more").type_name(names);
  command.add_option("-o,--output", flags->output, "the file to write: NAME.onnx");
  command.add_options(bind_options(*flags, kZooOptions));
  command.callback([flags, &outcome] {
    if (const auto done = zoo(*flags); !done) outcome.code = report(done.error());
  });
}

}  // namespace bolide::cli
