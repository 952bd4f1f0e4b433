// The commands on ONNX models, as their user types them.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/cli.h"
#include "formats/test_files.h"
#include "zoo/zoo.h"

namespace bolide::cli {
namespace {

struct Said {
  int code = -1;
  std::string out, err;
};

Said say(std::vector<std::string> words) {
  words.insert(words.begin(), "bolide");
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  const int code = run_program(static_cast<int>(argv.size()), argv.data(), Version{});
  return {code, ::testing::internal::GetCapturedStdout(), ::testing::internal::GetCapturedStderr()};
}

class NetworkCommands : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto model = make_zoo_model("minilm-l6", {.layers = 1, .vocab = 40});
    ASSERT_TRUE(model.has_value());
    ASSERT_TRUE(write_onnx(model->file, path_).has_value());
  }
  void refused(std::vector<std::string> words, const std::string& expected) {
    words.insert(words.begin() + 1, path_.string());
    const Said said = say(words);
    EXPECT_GE(said.code, 1);
    EXPECT_NE(said.err.find(expected), std::string::npos) << said.err;
  }
  nlohmann::json json(std::vector<std::string> words) {
    words.insert(words.begin() + 1, path_.string());
    words.emplace_back("--json");
    const Said said = say(words);
    EXPECT_EQ(said.code, 0) << said.err;
    return nlohmann::json::parse(said.out, nullptr, false);
  }

  const test::TemporaryFolder folder_;
  const std::filesystem::path path_ = folder_.path() / "model.onnx";
};

TEST_F(NetworkCommands, ProfileSplitsACallAndSharesItsTime) {
  const auto out = json({"profile", "--dim", "sequence=9", "--by", "kernel"});
  ASSERT_FALSE(out.is_discarded());
  EXPECT_GT(out["first_call"]["allocations"], 0);
  EXPECT_GE(out["first_call"]["ms"], out["first_call"]["kernels_ms"]);
  double share = 0;
  for (const auto& row : out["by_kernel"]) share += row["share_percent"].get<double>();
  EXPECT_NEAR(share, 100, 1);
}

TEST_F(NetworkCommands, DimsAreGivenByName) {
  const auto out = json({"bench", "--dim", "sequence=9", "--dim", "batch=2", "--repeat", "2"});
  for (const auto& [name, shape] : out["inputs"].items()) EXPECT_EQ(shape, "i64[2, 9]") << name;
  refused({"bench", "--dim", "length=9"},
          "--dim length=9: expected NAME=N with a dim that the inputs leave open: batch");
  refused({"bench", "--dim", "sequence=1x2"}, "--dim sequence=1x2: expected NAME=N");
  for (const char* flag : {"sequence=", "sequence=-1", "sequence=1e3"})
    refused({"profile", "--dim", flag}, std::string("--dim ") + flag + ": expected NAME=N");
  refused({"compare", "--dim", "length=9"}, "--dim length=9: expected NAME=N with a dim");
  refused({"profile", "--dim", "sequence"}, "--dim sequence: expected NAME=N");
}

TEST_F(NetworkCommands, FirstCallsOfEverySizeAreTimed) {
  const auto out = json({"bench", "--first-calls", "sequence=2:6"});
  EXPECT_EQ(out["dim"], "sequence");
  EXPECT_GT(out["ratio"]["median"], 0);
  EXPECT_EQ(out["slow"].size() * 20, out["slower_than_twice_percent"].get<double>());
  refused({"bench", "--first-calls", "sequence=6:2"}, "expected NAME=LOW:HIGH");
  refused({"bench", "--first-calls", "sequence=a:b"}, "--first-calls sequence=a:b: expected NAME=LOW:HIGH");
  refused({"bench", "--first-calls", "sequence=1:100000000000"}, "at most 65536");
}

TEST_F(NetworkCommands, AProfileOfShapesIsKept) {
  const auto with = [&](const char* ids) {
    std::vector<std::string> words = {"run"};
    for (const char* name : {"input_ids", "attention_mask", "token_type_ids"}) {
      const std::string shape = name == std::string("input_ids") ? ids : "1x8";
      words.insert(words.end(), {"--input", std::string(name) + "=random:" + shape});
      words.insert(words.end(), {"--profile-shape", std::string(name) + "=1x1,1x8,1x16"});
    }
    return words;
  };
  EXPECT_FALSE(json(with("1x8")).is_discarded());
  refused(with("1x17"), "dim 1 is meant to be 1 to 16");
  refused({"run", "--profile-shape", "input_ids=1x1,1x8"}, "expected three shapes");
  refused({"run", "--profile-shape", "input_ids=1x9,1x8,1x16"}, "expected min <= opt <= max");
  refused({"run", "--profile-shape", "input_ids=,,"}, "--profile-shape input_ids=,,: ");
  refused({"run", "--profile-shape", "x=1,2,3"}, "an input of the model");
  refused({"run", "--profile-shape", "input_ids=1,2,3"}, "the input is i64[");
}

TEST_F(NetworkCommands, BucketsChangeNothingButTheShapesThatTheNetworkSees) {
  std::vector<std::string> words = {"run"};
  words.insert(words.end(), {"--input", "input_ids=[[3, 1, 4, 1, 5]]", "--input", "attention_mask=[[1, 1, 1, 1, 1]]"});
  words.insert(words.end(), {"--input", "token_type_ids=[[0, 0, 1, 1, 1]]"});
  const auto plain = json(words);
  words.insert(words.end(), {"--bucket", "sequence=4,16"});
  const auto padded = json(words);
  for (const char* name : {"last_hidden_state", "pooler_output"}) {
    EXPECT_EQ(plain["outputs"][name]["shape"], padded["outputs"][name]["shape"]);
    EXPECT_NEAR(plain["outputs"][name]["mean"], padded["outputs"][name]["mean"].get<double>(), 1e-5);
    EXPECT_NEAR(plain["outputs"][name]["max"], padded["outputs"][name]["max"].get<double>(), 1e-4);
  }
  refused({"bench", "--bucket", "length=4"}, "a dim that the inputs leave open: batch, sequence");
  refused({"bench", "--bucket", "sequence=16,4"}, "ascending sizes");
}

// A model whose output, and its node, is called to move the cursor.
TEST_F(NetworkCommands, NamesOfAFileMoveNoCursor) {
  OnnxDraft draft;
  draft.opsets = {{"", 18}};
  draft.inputs = {{"x", DType::kF32, {int64_t{2}}}};
  draft.outputs = {{"\x1b[2Jy", DType::kF32, {int64_t{2}}}};
  draft.nodes = {{"\x1b[31mn", "Relu", "", {"x"}, {"\x1b[2Jy"}, {}}};
  ASSERT_TRUE(write_onnx(draft, path_).has_value());
  const std::string path = path_.string();
  for (const std::vector<std::string>& words : {std::vector<std::string>{"run", path, "--input", "[1, 2]"},
                                                {"inspect", path},
                                                {"inspect", path, "--plan"},
                                                {"profile", path, "--by", "node"},
                                                {"compare", path}}) {
    const Said said = say(words);
    EXPECT_EQ(said.code, 0) << said.err;
    EXPECT_EQ(said.out.find('\x1b'), std::string::npos) << said.out;
  }
  EXPECT_NE(say({"inspect", path}).out.find("\\u{1b}[2Jy"), std::string::npos);
}

TEST_F(NetworkCommands, JsonOfAFileWhoseNameIsNoUtf8) {
  const auto path = folder_.path() / "a\xff.ONNX";  // capitals: a model all the same
  std::filesystem::copy_file(path_, path);
  for (const char* what : {"--graph", "--plan"}) {
    const Said said = say({"inspect", path.string(), what, "--json"});
    EXPECT_EQ(said.code, 0) << said.err;
    EXPECT_FALSE(nlohmann::json::parse(said.out, nullptr, false).is_discarded()) << said.out;
  }
}

TEST_F(NetworkCommands, ASuiteWithLinksThatLeadNowhere) {
  std::filesystem::create_symlink("loop", folder_.path() / "loop");
  EXPECT_NE(say({"conformance", folder_.path().string()}).err.find("has no cases"), std::string::npos);
}

TEST_F(NetworkCommands, WhatIsGivenTwiceOrUnknownIsRefused) {
  refused({"bench", "--input", "input_ids=[[1]]", "--input", "input_ids=[[2]]"}, "--input: input_ids is given twice");
  refused({"bench", "--shape", "input_ids=1x2", "--shape", "input_ids=1x3"}, "--shape: input_ids is given twice");
  std::filesystem::create_directories(folder_.path() / "suite" / "case");
  std::filesystem::copy_file(path_, folder_.path() / "suite" / "case" / "model.onnx");
  const Said said = say({"conformance", (folder_.path() / "suite").string(), "--skip-passes", "zz"});
  EXPECT_NE(said.err.find("--skip-passes: 'zz' is not a pass; there are "), std::string::npos) << said.err;
}

TEST_F(NetworkCommands, MemoryIsLimited) {
  refused({"bench", "--dim", "sequence=300", "--memory-limit", "1MiB"}, "are beyond the limit of 1.00 MiB");
  EXPECT_FALSE(json({"bench", "--dim", "sequence=9", "--repeat", "1", "--memory-limit", "64MiB"}).is_discarded());
  refused({"bench", "--memory-limit", "many"}, "--memory-limit");
}

TEST_F(NetworkCommands, RefusalsNameTheFile) {
  refused({"run", "--input", "input_ids=[[1, 2]]", "--input", "attention_mask=[[1, 2, 3]]", "--input",
           "token_type_ids=[[1, 2]]"},
          "model.onnx: node ");
  refused({"bench", "--input", "input_ids=[1]"}, "model.onnx: input input_ids");
  for (const char* number : {"1.5", "1e300", "-1e300", "9223372036854775808"})
    refused({"bench", "--input", fmt::format("input_ids=[[{}]]", number)}, "is no number of i64");
  const auto broken = folder_.write("nan.json", "[NaN]").string();
  refused({"bench", "--input", "input_ids=" + broken}, "nan.json: is no JSON");
  const auto text = folder_.write("text.onnx", "<!DOCTYPE html>");
  EXPECT_NE(say({"inspect", text.string()}).err.find("text.onnx: broken protobuf"), std::string::npos);
  EXPECT_NE(say({"inspect", text.string()}).err.find("it is no ONNX file"), std::string::npos);
}

}  // namespace
}  // namespace bolide::cli
