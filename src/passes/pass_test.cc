// tests/graph/*.test: graph text in, passes, graph text out. BOLIDE_UPDATE=1 rewrites what is expected; review the
// diff.
//
//   === what the case shows
//   passes merge_linears remove_dead      by name; or: all -left_out -left_out
//   --- in
//   %0 = input x : f32[T,8]
//   --- out
//   merge_linears 1                       rewrites of each pass, or "error: ..."
//   %0 = input x : f32[T,8]
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "passes/pass.h"

namespace bolide {
namespace {

struct GraphCase {
  std::string name, passes, in, out;
};

std::vector<GraphCase> read_cases(const std::filesystem::path& path) {
  std::vector<GraphCase> cases;
  std::ifstream file(path);
  std::string* section = nullptr;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("=== ")) {
      cases.push_back({line.substr(4), {}, {}, {}});
      section = nullptr;
    } else if (cases.empty()) {
      ADD_FAILURE() << path << ": text before the first case";
    } else if (line.starts_with("passes ") && section == nullptr) {
      cases.back().passes = line.substr(7);
    } else if (line == "--- in" || line == "--- out") {
      section = line == "--- in" ? &cases.back().in : &cases.back().out;
    } else if (section != nullptr) {
      *section += line + '\n';
    }
  }
  return cases;
}

void write_cases(const std::filesystem::path& path, const std::vector<GraphCase>& cases) {
  std::ofstream file(path);
  for (const GraphCase& c : cases)
    file << "=== " << c.name << "\npasses " << c.passes << "\n--- in\n" << c.in << "--- out\n" << c.out;
}

// Fusions must not depend on the machine that runs the tests.
DeviceInfo scalar_device() {
  DeviceInfo device;
  device.name = "scalar";
  device.isa = Isa::kScalar;
  return device;
}

std::string run_case(const GraphCase& c) {
  auto graph = Graph::from_text(c.in);
  if (!graph) return "unreadable: " + graph.error().text + '\n';
  std::vector<Pass> passes;
  std::set<std::string> skip;
  std::istringstream words(c.passes);
  for (std::string word; words >> word;) {
    if (word == "all") {
      passes.assign(default_passes().begin(), default_passes().end());
    } else if (word.starts_with('-')) {
      skip.insert(word.substr(1));
    } else {
      const auto all = default_passes();
      const auto pass = std::find_if(all.begin(), all.end(), [&](const Pass& p) { return p.name == word; });
      if (pass == all.end()) return "unreadable: no pass " + word + '\n';
      passes.push_back(*pass);
    }
  }
  const DeviceInfo device = scalar_device();
  int seen = 0;
  const auto count = [&](const PassRecord&, const Graph&) { ++seen; };
  const FunctionRef<void(const PassRecord&, const Graph&)> after(count);
  const auto records = run_passes(*graph, passes, {&cpu_kernels(), &device}, skip, &after);
  if (!records) return "error: " + records.error().text + '\n';
  EXPECT_EQ(static_cast<size_t>(seen), passes.size());
  if (const auto good = graph->verify(); !good) return "broken: " + good.error().text + '\n';
  std::string out;
  for (const PassRecord& record : *records)
    out += record.skipped ? fmt::format("{} skipped\n", record.name)
                          : fmt::format("{} {}\n", record.name, record.rewrites);
  return out + graph->to_text();
}

TEST(Passes, GraphCases) {
  const bool update = std::getenv("BOLIDE_UPDATE") != nullptr;
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(BOLIDE_SOURCE_DIR "/tests/graph")) {
    if (entry.path().extension() != ".test") continue;
    std::vector<GraphCase> cases = read_cases(entry.path());
    for (GraphCase& c : cases) {
      const std::string got = run_case(c);
      ++count;
      if (update)
        c.out = got;
      else
        EXPECT_EQ(got, c.out) << entry.path().filename() << ": " << c.name;
    }
    if (update) write_cases(entry.path(), cases);
  }
  EXPECT_GE(count, 40);
}

// What a pass leaves is its own fixed point, and text round trips.
TEST(Passes, RunningAgainChangesNothing) {
  const DeviceInfo device = scalar_device();
  for (const auto& entry : std::filesystem::directory_iterator(BOLIDE_SOURCE_DIR "/tests/graph"))
    for (const GraphCase& c : read_cases(entry.path())) {
      auto graph = Graph::from_text(c.in);
      ASSERT_TRUE(graph.has_value()) << c.name << ": " << graph.error().text;
      ASSERT_TRUE(run_passes(*graph, default_passes(), {&cpu_kernels(), &device}, {}).has_value()) << c.name;
      const std::string once = graph->to_text();
      auto again = Graph::from_text(once);
      ASSERT_TRUE(again.has_value()) << c.name << ": " << again.error().text;
      const auto records = run_passes(*again, default_passes(), {&cpu_kernels(), &device}, {});
      ASSERT_TRUE(records.has_value());
      for (const PassRecord& record : *records) EXPECT_EQ(record.rewrites, 0) << c.name << ": " << record.name;
    }
}

TEST(Passes, UnknownNameIsRefusedWithTheKnownOnes) {
  Graph graph;
  const DeviceInfo device = scalar_device();
  const auto records = run_passes(graph, default_passes(), {&cpu_kernels(), &device}, {"fuse_everything"});
  ASSERT_FALSE(records.has_value());
  EXPECT_NE(records.error().text.find("fuse_everything"), std::string::npos);
  for (const Pass& pass : default_passes())
    EXPECT_NE(records.error().text.find(pass.name), std::string::npos) << records.error().text;
}

// A fusion fires only if some kernel computes the fused op.
TEST(Passes, NothingFusesWithoutAKernel) {
  const KernelRegistry none(std::span<const std::span<const Kernel>>{});
  const DeviceInfo device = scalar_device();
  for (const char* name :
       {"merge_linears", "fuse_gated_act", "fuse_rope_kv_write", "fuse_add_norm", "fuse_linear_add"}) {
    const auto cases = read_cases(fmt::format("{}/tests/graph/{}.test", BOLIDE_SOURCE_DIR, name));
    ASSERT_FALSE(cases.empty()) << name;
    auto graph = Graph::from_text(cases[0].in);
    ASSERT_TRUE(graph.has_value());
    const auto records = run_passes(*graph, default_passes(), {&none, &device}, {});
    ASSERT_TRUE(records.has_value());
    for (const PassRecord& record : *records)
      if (record.name == name) {
        EXPECT_EQ(record.rewrites, 0) << name;
      }
  }
}

}  // namespace
}  // namespace bolide
