// bolide doctor: what of this machine Bolide uses, what is in its way, and what to change.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "cli/cli.h"
#include "cli/doctor_facts.h"
#include "cli/flags.h"

namespace bolide::cli {
namespace {

constexpr const char* kFooter = R"(Examples:
  bolide doctor                          the machine
  bolide doctor model.gguf network.onnx  and whether these can be opened and fit
  bolide doctor --port 8000 --port 9000 --json

Each line is ok, note (it works, and could be better) or problem. Exit code 1 if there is a problem.)";

struct DoctorFlags {
  std::vector<std::string> models, ports;
  std::string cuda_libs;
  bool json = false;
};

constexpr Option<DoctorFlags> kDoctorOptions[] = {
    {"cuda_libs", &DoctorFlags::cuda_libs, {}, "folder where NVIDIA's libraries are looked for first"},
    {"json", &DoctorFlags::json, {}, "one JSON object on standard output"},
};

Result<int> doctor(const DoctorFlags& flags) {
  LookOptions options;
  options.models = flags.models;
  options.cuda_libs = flags.cuda_libs;
  constexpr int kServersPort = 8000;
  if (flags.ports.empty()) options.ports.push_back(kServersPort);
  for (const std::string& text : flags.ports) {
    int port = 0;
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), port);
    if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size() || port < 1 || port > 65535)
      return error(Code::kInvalid, fmt::format("--port \"{}\" is no number from 1 to 65535", text.substr(0, 40)));
    options.ports.push_back(port);
  }
  const std::vector<Finding> findings = judge(look_at_machine(options));
  if (flags.json)
    fmt::print("{}\n", findings_json(findings));
  else
    fmt::print("{}", findings_text(findings));
  return std::any_of(findings.begin(), findings.end(),
                     [](const Finding& finding) { return finding.verdict == Verdict::kProblem; })
             ? 1
             : 0;
}

}  // namespace

void add_doctor(const Command& app, Outcome& outcome) {
  const Command command =
      app.add_command("doctor", "Say what of this machine is used, what is in the way, what to change");
  auto flags = std::make_shared<DoctorFlags>();
  command.footer(kFooter);
  command.add_option("models", flags->models, "model files: are they whole, do they fit");
  command.add_option("--port", flags->ports, "is it free for a server (may be repeated; 8000 if none is given)")
      .repeated();
  const auto options = bind_options(*flags, kDoctorOptions);
  command.add_options(options);
  command.callback([flags, &outcome] {
    const auto code = doctor(*flags);
    outcome.code = code ? *code : report(code.error());
  });
}

}  // namespace bolide::cli
