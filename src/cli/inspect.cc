// bolide inspect: what is in a model file, and what Bolide makes of it.
#include <fmt/format.h>

#include <cstdio>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "app/conversation.h"
#include "app/engine.h"
#include "app/network.h"
#include "app/workload.h"
#include "base/knobs.h"
#include "base/utf8.h"
#include "cli/cli.h"
#include "cli/flags.h"
#include "cli/network.h"
#include "measure/report.h"
#include "models/families.h"

namespace bolide::cli {
namespace {

constexpr const char* kFooter = R"(Examples:
  bolide inspect model.gguf                     what is in the file
  bolide inspect model.gguf --graph             the graph before and after each pass
  bolide inspect model.gguf --plan --tokens-in-step 512
  bolide inspect network.onnx --plan --dim batch=8
  bolide inspect model.gguf --tokens "Hello world"
  bolide inspect model.gguf --template)";

struct InspectFlags {
  ModelConfigFlags model;
  std::string path, tokens, template_file;
  std::vector<std::string> template_args, shapes, dims;
  int32_t tokens_in_step = 1;
  bool graph = false, plan = false, tensors = false, chat = false, knobs = false, options = false, full = false;
  bool json = false;
};

constexpr Option<InspectFlags> kInspectOptions[] = {
    {"tokens_in_step",
     &InspectFlags::tokens_in_step,
     {.min = 1, .max = 65536},
     "with --plan: tokens of the step that is planned"},
};

// A tensor of a checkpoint, or a packed weight of an engine.
struct TensorRow {
  std::string name, type, shape;
  int64_t elements = 0;
  size_t bytes = 0;
};

std::vector<TensorRow> tensors_of(const Prepared& prepared) {
  std::vector<TensorRow> rows;
  if (const auto& weights = prepared.loaded.weights; weights != nullptr)
    for (const std::string& name : weights->names()) {
      const WeightInfo* info = weights->find(name);
      rows.push_back({name, std::string(info->quant != nullptr ? info->quant->name : to_string(info->dtype)),
                      to_string(info->shape), info->shape.elements(), info->byte_size()});
    }
  for (const StoredWeight& weight : prepared.packed) {
    const Value& value = prepared.graph.value(weight.value);
    rows.push_back({to_string(std::span(value.parts)),
                    fmt::format("{}{}", to_string(value.type).substr(0, to_string(value.type).find('[')),
                                weight.packing == nullptr ? "" : fmt::format(" ({})", weight.packing->name)),
                    to_string(weight.view.shape), weight.view.shape.elements(), weight.bytes});
  }
  return rows;
}

void print_summary(const Prepared& prepared) {
  const LoadedModel& loaded = prepared.loaded;
  size_t bytes = 0;
  int64_t elements = 0;
  std::map<std::string, std::pair<int, size_t>> types;
  const std::vector<TensorRow> tensors = tensors_of(prepared);
  for (const TensorRow& row : tensors) {
    bytes += row.bytes;
    elements += row.elements;
    auto& [count, size] = types[row.type];
    ++count;
    size += row.bytes;
  }
  fmt::print("{:<14}{}\n{:<14}{} ({})\n", "name", printable(loaded.name), "file", printable(loaded.path.string()),
             loaded.format);
  if (const auto architecture = loaded.config.architecture())
    fmt::print("{:<14}{}\n", "architecture", printable(*architecture));
  fmt::print("{:<14}{:.1f} M in {} tensors, {}\n", "parameters", static_cast<double>(elements) / 1e6, tensors.size(),
             format_bytes(static_cast<int64_t>(bytes)));
  for (const auto& [type, sum] : types)
    fmt::print("{:<14}{}: {} tensors, {}\n", "", type, sum.first, format_bytes(static_cast<int64_t>(sum.second)));
  fmt::print("{:<14}{}\n", "chat template",
             loaded.chat_template.empty() ? "none" : fmt::format("{} characters", loaded.chat_template.size()));
  fmt::print("\n{}\n", printable(loaded.config.to_text(), true));
}

void print_tensors(const Prepared& prepared) {
  for (const TensorRow& row : tensors_of(prepared))
    fmt::print("{:<60} {:<8} {:<18} {}\n", printable(row.name), row.type, row.shape,
               format_bytes(static_cast<int64_t>(row.bytes)));
}

// Nodes of the first layer, by op; the layers of a decoder are alike.
std::map<std::string, int> ops_of_layer(const Graph& graph) {
  std::map<std::string, int> counts;
  for (const NodeId id : graph.order())
    if (graph.node(id).name.starts_with("layers.0.")) ++counts[std::string(op_name(graph.node(id).op))];
  return counts;
}

void print_graph(std::string_view title, const Graph& graph, bool full) {
  int total = 0;
  std::string ops;
  for (const auto& [op, count] : ops_of_layer(graph)) {
    total += count;
    ops += fmt::format("{}{}{}", ops.empty() ? "" : ", ", op, count > 1 ? fmt::format(" x {}", count) : "");
  }
  fmt::print("{:<24}{} nodes, {} a layer: {}\n", title, graph.order().size(), total, ops);
  if (full) fmt::print("{}\n", graph.to_text());
}

Result<> inspect_graph(LoadedModel loaded, const ModelOptions& options, bool full) {
  BOLIDE_TRY(const auto device, make_device(options));
  BOLIDE_TRY(fit_weights_to_device(loaded, options));
  BOLIDE_TRY(Graph graph, build_graph(loaded, options.dtype));
  print_graph("as built", graph, full);
  BOLIDE_TRY(fit_to_device(graph, options));
  const PassContext context{&kernels_for(options), &device->info()};
  const auto show = [&](const PassRecord& record, const Graph& after) {
    const std::string title =
        record.skipped ? fmt::format("{} (skipped)", record.name) : fmt::format("{}: {}", record.name, record.rewrites);
    print_graph(title, after, full && record.rewrites > 0);
  };
  const FunctionRef<void(const PassRecord&, const Graph&)> observer(show);
  BOLIDE_TRY(run_passes(graph, default_passes(), context, options.skip_passes, &observer));
  return {};
}

Result<> inspect_plan(const std::string& path, const ModelOptions& options, int32_t tokens) {
  ModelOptions sized = options;
  if (constexpr int32_t kUsual = 512; tokens > kUsual) sized.tokens_per_step = tokens;
  BOLIDE_TRY(PlanSet plans, outline_plans(path, sized));
  const SymbolValues sizes{{tokens, 1, 1}};
  BOLIDE_TRY(const Plan* plan, plans.select(sizes));
  const Graph& graph = plans.graph();
  Table table({{"step"}, {"op"}, {"kernel"}, {"packing"}, {"kib", 1}, {"mflop", 2}, {"arena_offset", 0}});
  const auto kernel_of = [&](const StepGroup& group, const Step& step) {
    if (group.chain == nullptr)
      return fmt::format("{}{}", step.kernel->name, step.kernel->reference ? " (reference)" : "");
    return fmt::format("{} ({} of {})", group.chain->name, &step - &plan->steps[group.first] + 1, group.count);
  };
  auto group = plan->groups.begin();
  for (const Step& step : plan->steps) {
    if (&step == &plan->steps[group->first] + group->count) ++group;
    const Node& node = graph.node(step.node);
    std::vector<ValueType> in, out;
    std::string packing;
    for (const Operand& operand : step.in) {
      in.push_back(operand.type);
      if (operand.kind == Operand::Kind::kWeight && operand.packing != nullptr) packing = operand.packing->name;
    }
    for (const Operand& operand : step.out) out.push_back(operand.type);
    const Cost cost = cost_of(node.op, in, out, sizes, tokens);
    table.add({node.name, std::string(op_name(node.op)), kernel_of(*group, step), packing, cost.bytes / 1024,
               cost.flops / 1e6, step.out.empty() ? 0. : static_cast<double>(step.out[0].offset)});
  }
  size_t packed_bytes = 0;
  for (const StoredWeight& weight : plans.weights().all())
    if (weight.packing != nullptr) packed_bytes += weight.bytes;
  fmt::print(
      "bucket T={} S={} R={}: {} steps in {} launches, arena {} + workspace {}, weights {} ({} of them packed)\n{}",
      plan->bucket[Symbol::kTokens], plan->bucket[Symbol::kSequences], plan->bucket[Symbol::kRows], plan->steps.size(),
      plan->groups.size(), format_bytes(static_cast<int64_t>(plan->values_bytes)),
      format_bytes(static_cast<int64_t>(plan->workspace_bytes)),
      format_bytes(static_cast<int64_t>(plans.weights().bytes())), format_bytes(static_cast<int64_t>(packed_bytes)),
      table.to_text());
  return {};
}

Result<> inspect_tokens(const LoadedModel& loaded, const std::string& text) {
  BOLIDE_TRY(const Tokenizer tokenizer, make_tokenizer(loaded).context(loaded.path.string()));
  BOLIDE_TRY(const auto ids, tokenizer.encode(text));
  for (const int32_t id : ids) {
    const std::string quoted =
        nlohmann::json(tokenizer.token_bytes(id)).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    fmt::print("{:>8}  {}\n", id, quoted);
  }
  fmt::print("{} tokens\n", ids.size());
  return {};
}

Result<> inspect_template(const LoadedModel& loaded, const InspectFlags& flags) {
  BOLIDE_TRY(const Tokenizer tokenizer, make_tokenizer(loaded).context(loaded.path.string()));
  BOLIDE_TRY(auto chat_template,
             choose_template(loaded.chat_template, loaded.chat_template_file, flags.template_file, false));
  if (!chat_template.has_value())
    return error(Code::kNotFound,
                 fmt::format("{}: the model has no chat template; give one with --template-file", flags.path));
  BOLIDE_TRY(auto variables, template_variables(flags.template_args));
  fmt::print("{}\n\n--- a conversation rendered with it ---\n", printable(chat_template->source(), true));
  Conversation conversation(tokenizer, std::move(chat_template), std::move(variables));
  conversation.add("user", "Hello!");
  conversation.add("assistant", "Hi. What can I do for you?");
  conversation.add("user", "Tell me a joke.");
  BOLIDE_TRY(const std::string text, conversation.render());
  fmt::print("{}\n", printable(text, true));
  return {};
}

// What was asked for, one view after the other; with a heading each if they are several.
class Views {
 public:
  explicit Views(int count) : several_(count > 1) {}
  void begin(std::string_view heading) {
    if (several_) fmt::print("{}--- {} ---\n", std::exchange(first_, false) ? "" : "\n", heading);
  }

 private:
  bool several_, first_ = true;
};

Result<> inspect_loaded(const Command& app, const InspectFlags& flags, const ModelOptions& options,
                        const Prepared& prepared) {
  const bool tokens = app.count("--tokens") > 0;
  const int asked = int{flags.graph} + int{flags.plan} + int{flags.tensors} + int{tokens} + int{flags.chat};
  if (asked == 0) return print_summary(prepared), ok();
  Views views(asked);
  if (flags.graph) {
    views.begin("graph");
    if (prepared.loaded.weights == nullptr)
      print_graph("as stored", prepared.graph, flags.full);
    else
      BOLIDE_TRY(inspect_graph(prepared.loaded, options, flags.full));
  }
  if (flags.plan) {
    views.begin("plan");
    BOLIDE_TRY(inspect_plan(flags.path, options, flags.tokens_in_step));
  }
  if (flags.tensors) {
    views.begin("tensors");
    print_tensors(prepared);
  }
  if (tokens) {
    views.begin("tokens");
    BOLIDE_TRY(inspect_tokens(prepared.loaded, flags.tokens));
  }
  if (flags.chat) {
    views.begin("template");
    BOLIDE_TRY(inspect_template(prepared.loaded, flags));
  }
  return {};
}

Result<> inspect(const Command& app, const InspectFlags& flags) {
  if (flags.knobs) {
    BOLIDE_TRY(const Knobs knobs, read_knobs());
    fmt::print("{}", list_knobs(knobs));
    return {};
  }
  if (flags.options) {
    InspectFlags values = flags;
    fmt::print("{}", list_options(bind_options(values.model, kModelOptions)));
    return {};
  }
  if (flags.path.empty()) return error(Code::kInvalid, "inspect needs a MODEL");
  if (is_network(flags.path))
    return inspect_network({.path = flags.path,
                            .inputs = {},
                            .shapes = flags.shapes,
                            .dims = flags.dims,
                            .ranges = {},
                            .buckets = {},
                            .output = {},
                            .threads = flags.model.threads,
                            .skip_passes = flags.model.skip_passes,
                            .device = flags.model.device,
                            .cuda_libs = flags.model.cuda_libs,
                            .tuning_cache = flags.model.tuning_cache,
                            .dtype = flags.model.dtype,
                            .isa = flags.model.isa,
                            .graph = flags.graph,
                            .plan = flags.plan,
                            .json = flags.json});
  if (flags.json) return error(Code::kInvalid, "--json is for ONNX models");
  BOLIDE_TRY(const ModelOptions options, to_model_options(flags.model));
  if (is_engine(flags.path)) {
    BOLIDE_TRY(const Prepared engine, read_engine(flags.path, options));
    return inspect_loaded(app, flags, options, engine);
  }
  BOLIDE_TRY(LoadedModel loaded, load_model(flags.path, {options.config, /*any_family=*/!flags.graph}));
  return inspect_loaded(app, flags, options, Prepared{std::move(loaded), {}, {}, {}, 0});
}

}  // namespace

void add_inspect(const Command& app, Outcome& outcome) {
  const Command command = app.add_command("inspect", "Show what is in a model and what becomes of it");
  auto flags = std::make_shared<InspectFlags>();
  command.footer(kFooter);
  command.add_option("model", flags->path, "a GGUF file, a Hugging Face folder, an engine or synth:NAME");
  command.add_flag("--graph", flags->graph, "operators per layer before and after each pass");
  command.add_flag("--full", flags->full, "with --graph: the whole graph as text");
  command.add_flag("--plan", flags->plan, "the kernel, packing, bytes and FLOPs of each step");
  const auto own = bind_options(*flags, kInspectOptions);
  command.add_options(own);
  command.add_flag("--tensors", flags->tensors, "every tensor with type and shape");
  command.add_option("--tokens", flags->tokens, "how this text is tokenised");
  command.add_flag("--template", flags->chat, "the chat template and a conversation rendered with it");
  command.add_option("--template-file", flags->template_file,
                     "with --template: this Jinja file instead of the model's (run has a flag of the same name)");
  command.add_option("--template-arg", flags->template_args, "with --template: KEY=VALUE (may be repeated)").repeated();
  command.add_option("--shape", flags->shapes, "ONNX, with --plan: NAME=1x3x224x224 (may be repeated)").repeated();
  command
      .add_option("--dim", flags->dims,
                  "ONNX, with --plan: NAME=N for a dim that the inputs leave open (may be repeated)")
      .repeated();
  command.add_flag("--json", flags->json, "ONNX: one JSON object on standard output");
  command.add_flag("--knobs", flags->knobs, "debug settings that the environment may have");
  command.add_flag("--options", flags->options, "the options that models are opened with, with their values");
  const auto model = bind_options(flags->model, kModelOptions);
  command.add_options(model, "Model");
  command.callback([command, flags, &outcome] {
    if (const auto done = inspect(command, *flags); !done) outcome.code = report(done.error());
  });
}

}  // namespace bolide::cli
