// What hostile files are refused for: small ones that would become large, and names that are there twice.
#include "onnx/import.h"

#include <gtest/gtest.h>

#include "base/log.h"
#include "formats/proto_write.h"

namespace bolide {
namespace {

struct Call {
  std::string op, in, out, domain, name;
  std::string attribute;  // a whole message
};

ProtoWriter node(const Call& call) {
  ProtoWriter to;
  if (!call.in.empty()) to.text(1, call.in);
  to.text(2, call.out);
  if (!call.name.empty()) to.text(3, call.name);
  to.text(4, call.op);
  if (!call.attribute.empty()) to.text(5, call.attribute);
  to.text(7, call.domain);
  return to;
}
ProtoWriter opset(std::string_view domain, int64_t version) {
  ProtoWriter to;
  to.text(1, domain);
  to.integer(2, version);
  return to;
}
ProtoWriter named(std::string_view name) {
  ProtoWriter to;
  to.text(1, name);
  return to;
}
// A function of x that makes y.
ProtoWriter function(std::string_view name, const std::vector<Call>& calls, std::vector<std::string> inputs = {"x"}) {
  ProtoWriter to;
  to.text(1, name);
  for (const std::string& input : inputs) to.text(4, input);
  to.text(5, "y");
  for (const Call& call : calls) to.message(7, node(call));
  to.message(9, opset("", 18));
  to.message(9, opset("f", 1));
  to.text(10, "f");
  return to;
}
ProtoWriter graph(const std::vector<Call>& calls, const std::vector<std::string>& outputs = {"y"}) {
  ProtoWriter to;
  for (const Call& call : calls) to.message(1, node(call));
  to.message(11, named("x"));
  for (const std::string& output : outputs) to.message(12, named(output));
  return to;
}
Result<OnnxProgram> import(const ProtoWriter& graph, const std::vector<ProtoWriter>& functions = {}) {
  ProtoWriter model;
  model.integer(1, 8);
  model.message(7, graph);
  model.message(8, opset("", 18));
  model.message(8, opset("f", 1));
  for (const ProtoWriter& one : functions) model.message(25, one);
  const auto bytes = std::make_shared<const std::string>(model.bytes());
  return import_onnx(std::as_bytes(std::span(*bytes)), bytes, {}, "model.onnx");
}
std::string refusal(const Result<OnnxProgram>& program) {
  return program.has_value() ? "nothing is wrong" : program.error().text;
}
void expect_refused(const Result<OnnxProgram>& program, const std::string& why) {
  EXPECT_NE(refusal(program).find(why), std::string::npos) << refusal(program);
}

const std::vector<Call> kCallF = {{"F", "x", "y", "f", "", ""}};

TEST(ImportOnnx, FunctionsThatCallThemselvesAreNamed) {
  expect_refused(import(graph(kCallF), {function("F", kCallF)}), "function F calls itself");
  const auto mutual = import(graph(kCallF), {function("F", {{"G", "x", "y", "f", "", ""}}), function("G", kCallF)});
  // One node of the chain says where it is: the innermost.
  EXPECT_EQ(refusal(mutual), "model.onnx: node F_0/G_0/F_0 (f.F): function F calls itself, at once or through others");
  // The same function one after another is no recursion.
  EXPECT_TRUE(import(graph({{"F", "x", "a", "f", "", ""}, {"F", "a", "y", "f", "", ""}}),
                     {function("F", {{"Relu", "x", "y", "", "", ""}})})
                  .has_value());
}

TEST(ImportOnnx, WhatIsThereTwiceIsRefused) {
  const std::vector<Call> relu = {{"Relu", "x", "y", "", "", ""}};
  expect_refused(import(graph(kCallF), {function("F", relu), function("F", relu)}), "function f.F is there twice");
  expect_refused(import(graph(kCallF), {function("F", relu, {"x", "x"})}), "function f.F has two inputs of one name");
  const auto outputs = import(graph(relu, {"y", "y"}));
  expect_refused(outputs, "output y is listed twice");
  EXPECT_EQ(outputs.error().code, Code::kInvalid);
  expect_refused(import(graph({}, {})), "has no graph, or one without nodes and outputs");
}

// One name for all of them took the square of their number.
TEST(ImportOnnx, NodesOfOneNameGetNamesOfTheirOwn) {
  std::vector<Call> calls = {{"Relu", "x", "y", "", "same#3", ""}};
  for (int i = 0; i < 100000; ++i) calls.push_back({"Relu", "x", "v" + std::to_string(i), "", "same", ""});
  const auto program = import(graph(calls));
  ASSERT_TRUE(program.has_value()) << refusal(program);
  const auto& order = program->graph.order();
  EXPECT_EQ(program->graph.node(order[1]).name, "same");
  EXPECT_EQ(program->graph.node(order[3]).name, "same#4");
  EXPECT_EQ(program->graph.node(order.back()).name, "same#100001");
}

// F0 calls F1 ten times, and so on.
std::vector<ProtoWriter> tower(int levels, const Call& innermost) {
  std::vector<ProtoWriter> functions;
  for (int level = 0; level < levels; ++level) {
    std::vector<Call> calls;
    for (int i = 0; i < 10; ++i) {
      Call call = level + 1 == levels ? innermost : Call{"F" + std::to_string(level + 1), "x", "", "f", "", ""};
      call.out = i == 9 ? "y" : "t" + std::to_string(i);
      calls.push_back(call);
    }
    functions.push_back(function("F" + std::to_string(level), calls));
  }
  return functions;
}

TEST(ImportOnnx, LongNamesThatMultiplyAreRefused) {
  const std::vector<Call> outer = {{"F0", "x", "y", "f", std::string(1000000, 'n'), ""}};
  expect_refused(import(graph(outer), tower(5, {"Relu", "x", "", "", "", ""})), "names of nodes take more than");
}

TEST(ImportOnnx, TensorsThatMultiplyAreRefused) {
  ProtoWriter tensor;  // f32[1000000], in the form that is copied
  tensor.integer(1, 1000000);
  tensor.integer(2, 1);
  tensor.begin(4, 4000000);
  ProtoWriter attribute;
  attribute.text(1, "value");
  attribute.begin(5, tensor.size() + 4000000);
  Call constant{"Constant", "", "", "", "", ""};
  constant.attribute = attribute.bytes() + tensor.bytes() + std::string(4000000, '\0');
  ProtoWriter type;
  type.integer(20, 4);
  constant.attribute += type.bytes();
  const std::vector<Call> outer = {{"F0", "x", "y", "f", "", ""}};
  auto functions = tower(4, {"F9", "x", "", "f", "", ""});
  constant.out = "y";
  functions.push_back(function("F9", {constant}));
  expect_refused(import(graph(outer), functions), "those of called functions may have");
}

TEST(ImportOnnx, SparseTensorsThatAreHugeWhenDenseAreRefused) {
  ProtoWriter values, indices, sparse;
  values.integer(1, 1), values.integer(2, 1), values.text(8, "s"), values.text(9, std::string(4, '\0'));
  indices.integer(1, 1), indices.integer(2, 7), indices.text(9, std::string(8, '\0'));
  sparse.message(1, values), sparse.message(2, indices), sparse.integer(3, int64_t{1} << 32);
  ProtoWriter with = graph({{"Relu", "s", "y", "", "", ""}});
  with.message(15, sparse);
  expect_refused(import(with), "sparse tensor s: needs 17179869184 bytes");
}

// The warnings while it lives, a line each.
class Warnings : public log::Sink {
 public:
  Warnings() { log::set_sink(this, log::Level::kWarning); }
  ~Warnings() override { log::set_sink(nullptr, log::Level::kWarning); }
  void write(const log::Record& record) override { lines.push_back(to_line(record, log::LineFormat::kKeyValue)); }
  std::vector<std::string> lines;
};

TEST(ImportOnnx, UnknownAttributesAreNamedOnce) {
  const auto attribute = [](std::string_view name) {
    ProtoWriter to;
    to.text(1, name);
    to.integer(3, 1);
    to.integer(20, 2);
    return to.bytes();
  };
  Warnings warnings;
  const auto leaky = [&](std::string in, std::string out, std::string_view name) {
    return Call{"LeakyRelu", std::move(in), std::move(out), "", "", attribute(name)};
  };
  ASSERT_TRUE(import(graph({leaky("x", "a", "alfa"), leaky("a", "b", "alfa"), leaky("b", "y", "consumed_inputs")})));
  ASSERT_EQ(warnings.lines.size(), 1u);
  EXPECT_NE(warnings.lines[0].find("attribute=alfa operator=LeakyRelu first_node=LeakyRelu_0 nodes=2"),
            std::string::npos)
      << warnings.lines[0];
}

}  // namespace
}  // namespace bolide
