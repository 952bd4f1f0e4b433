#include "formats/onnx_write.h"

#include <gtest/gtest.h>

#include <random>

#include "base/file.h"
#include "formats/onnx_file.h"
#include "formats/test_files.h"

namespace bolide {
namespace {

std::string random_bytes(size_t size) {
  std::mt19937 random(std::random_device{}());
  std::string bytes(size, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

// Two tensors, one of them made in several pieces, and every kind of attribute.
OnnxDraft draft_of(const std::string& small, const std::string& large) {
  OnnxDraft draft;
  draft.producer = "writer", draft.name = "main";
  draft.opsets = {{"", 17}, {"com.microsoft", 1}};
  draft.metadata = {{"key", "value"}};
  OnnxDraftTensor constant{"", DType::kI64, {2}, std::string(16, '\1'), {}};
  draft.nodes.push_back({"first",
                         "Op",
                         "com.microsoft",
                         {"x", "", "small"},
                         {"y"},
                         {{"i", int64_t{-3}},
                          {"f", 0.5f},
                          {"s", std::string("text")},
                          {"is", std::vector<int64_t>{1, -1, int64_t{1} << 40}},
                          {"fs", std::vector<float>{1, -2.5f}},
                          {"t", constant}}});
  draft.initializers.push_back({"small", DType::kU8, {static_cast<int64_t>(small.size())}, small, {}});
  draft.initializers.push_back({"large", DType::kF16, {2, static_cast<int64_t>(large.size() / 4)}, "", {}});
  draft.initializers.back().fill = [&large](uint64_t at, MutableBytes out) {
    std::memcpy(out.data(), large.data() + at, out.size());
  };
  draft.inputs.push_back({"x", DType::kF32, {"batch", int64_t{3}}});
  draft.outputs.push_back({"y", DType::kF32, {int64_t{300}}});
  return draft;
}

TEST(OnnxWrite, IsReadBackAsItWas) {
  const test::TemporaryFolder folder;
  const std::string small = random_bytes(7), large = random_bytes(4 * 700'001);
  const OnnxDraft draft = draft_of(small, large);
  EXPECT_EQ(draft.weight_bytes(), small.size() + large.size());
  for (const bool external : {false, true}) {
    const auto path = folder.path() / (external ? "two.onnx" : "one.onnx");
    uint64_t last = 0;
    const auto show = [&](uint64_t done, uint64_t total) {
      EXPECT_GT(done, last);
      EXPECT_EQ(total, small.size() + large.size());
      last = done;
    };
    const OnnxWriteProgress progress(show);
    // A limit that is passed has the same effect as asking.
    const auto written = write_onnx(draft, path, {.inline_bytes_max = external ? 1000u : 1u << 30}, &progress);
    ASSERT_TRUE(written.has_value()) << written.error().text;
    EXPECT_EQ(last, small.size() + large.size());
    EXPECT_EQ(written->bytes, std::filesystem::file_size(path));
    EXPECT_EQ(written->data.empty(), !external);
    if (external) {
      EXPECT_EQ(written->external_bytes, std::filesystem::file_size(written->data));
    }

    auto file = MappedFile::open(path);
    ASSERT_TRUE(file.has_value());
    const auto model = OnnxModel::parse(file->bytes(), "test");
    ASSERT_TRUE(model.has_value()) << model.error().text;
    EXPECT_EQ(model->ir_version, 8);
    EXPECT_EQ(model->producer, "writer");
    ASSERT_EQ(model->opsets.size(), 2u);
    EXPECT_EQ(model->opsets[1].domain, "com.microsoft");
    EXPECT_EQ(model->opsets[0].version, 17);
    ASSERT_EQ(model->metadata.size(), 1u);
    EXPECT_EQ(model->metadata[0].second, "value");
    ASSERT_EQ(model->graph.nodes.size(), 1u);
    const OnnxNode& node = model->graph.nodes[0];
    EXPECT_EQ(node.in, (std::vector<std::string_view>{"x", "", "small"}));
    EXPECT_EQ(node.domain, "com.microsoft");
    ASSERT_EQ(node.attributes.size(), 6u);
    EXPECT_EQ(node.attributes[0].integer, -3);
    EXPECT_EQ(node.attributes[1].number, 0.5f);
    EXPECT_EQ(node.attributes[2].text, "text");
    EXPECT_EQ(node.attributes[3].integers, (std::vector<int64_t>{1, -1, int64_t{1} << 40}));
    EXPECT_EQ(node.attributes[4].numbers, (std::vector<float>{1, -2.5f}));
    ASSERT_EQ(node.attributes[5].tensors.size(), 1u);
    EXPECT_EQ(node.attributes[5].tensors[0].dims, std::vector<int64_t>{2});

    ASSERT_EQ(model->graph.initializers.size(), 2u);
    const OnnxData data{std::make_shared<int>(0), folder.path()};
    for (size_t i = 0; i < 2; ++i) {
      const auto tensor = onnx_tensor(model->graph.initializers[i], data);
      ASSERT_TRUE(tensor.has_value()) << tensor.error().text;
      const std::string& want = i == 0 ? small : large;
      ASSERT_EQ(tensor->bytes(), want.size());
      const Bytes got(tensor->data(), tensor->bytes());
      EXPECT_TRUE(as_text(got) == want);
    }
    ASSERT_EQ(model->graph.inputs.size(), 1u);
    const auto& dims = *model->graph.inputs[0].type.dims;
    EXPECT_EQ(dims[0].symbol, "batch");
    EXPECT_EQ(dims[1].value, 3);
    EXPECT_EQ((*model->graph.outputs[0].type.dims)[0].value, 300);
  }
}

TEST(OnnxWrite, NothingIsLeftWhereItCannotBeWritten) {
  const test::TemporaryFolder folder;
  const std::string small = random_bytes(3), large = random_bytes(8);
  const auto done = write_onnx(draft_of(small, large), folder.path() / "missing" / "a.onnx");
  ASSERT_FALSE(done.has_value());
  EXPECT_NE(done.error().text.find("missing"), std::string::npos);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

}  // namespace
}  // namespace bolide
