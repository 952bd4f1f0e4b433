#include "formats/safetensors.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <random>

#include "base/sanitizers.h"
#include "formats/test_files.h"

namespace bolide {
namespace {

using test::raw;
using test::safetensors_entry;
using test::safetensors_file;

std::string floats(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * 4};
}

std::string braces(const std::string& text) { return fmt::format("{{{}}}", text); }

std::string two_tensors() {
  return safetensors_file(
      braces("\"__metadata__\":{\"format\":\"pt\"}," + safetensors_entry("b", "F32", "[2,2]", 8, 24) + "," +
             safetensors_entry("a", "F32", "[2]", 0, 8)),
      floats({1, 2, 3, 4, 5, 6}));
}

std::string problem_of(const std::string& file) {
  const auto entries = parse_safetensors(as_bytes(file), "m.safetensors");
  if (entries) return "";
  EXPECT_TRUE(entries.error().text.starts_with("m.safetensors: ")) << entries.error().text;
  EXPECT_LT(entries.error().text.size(), 500u);
  return entries.error().text;
}

TEST(Safetensors, ReadsTensors) {
  const test::TemporaryFolder folder;
  const auto source = SafetensorsSource::open_file(folder.write("m.safetensors", two_tensors()));
  ASSERT_TRUE(source.has_value()) << source.error().text;
  EXPECT_EQ((*source)->names(), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ((*source)->find("b")->shape, (Shape{2, 2}));
  EXPECT_EQ(read_floats(**source, "b").value(), (std::vector<float>{3, 4, 5, 6}));
  EXPECT_EQ((*source)->find("c"), nullptr);
}

TEST(Safetensors, ReadsEveryType) {
  const std::vector<std::pair<const char*, DType>> types = {
      {"F64", DType::kF64},   {"F32", DType::kF32},        {"F16", DType::kF16},       {"BF16", DType::kBF16},
      {"I64", DType::kI64},   {"I32", DType::kI32},        {"I16", DType::kI16},       {"I8", DType::kI8},
      {"U64", DType::kU64},   {"U32", DType::kU32},        {"U16", DType::kU16},       {"U8", DType::kU8},
      {"BOOL", DType::kBool}, {"F8_E4M3", DType::kF8E4M3}, {"F8_E5M2", DType::kF8E5M2}};
  for (const auto& [name, dtype] : types) {
    const auto size = static_cast<uint64_t>(bits_of(dtype) / 8 * 6);
    const std::string file =
        safetensors_file(braces(safetensors_entry("t", name, "[2,3]", 0, size)), std::string(size, 'x'));
    const auto entries = parse_safetensors(as_bytes(file), "m.safetensors");
    ASSERT_TRUE(entries.has_value()) << entries.error().text;
    EXPECT_EQ(entries->front().info.dtype, dtype);
  }
  // Scalars and empty tensors are part of the format.
  const std::string file = safetensors_file(
      braces(safetensors_entry("s", "F32", "[]", 0, 4) + "," + safetensors_entry("e", "F32", "[0,5]", 4, 4)), "1234");
  EXPECT_EQ(problem_of(file), "");
}

// A header of odd length leaves the data at odd addresses: what is opened is aligned all the same.
TEST(Safetensors, AlignsWhatTheFileDoesNot) {
  for (int padding = 0; padding < 4; ++padding) {
    const std::string header = braces(safetensors_entry("t", "F32", "[2]", 0, 8)) + std::string(padding, ' ');
    const test::TemporaryFolder folder;
    const auto source = SafetensorsSource::open_file(folder.write("m", safetensors_file(header, floats({1.5f, 2.5f}))));
    ASSERT_TRUE(source.has_value()) << source.error().text;
    const auto data = (*source)->open("t");
    ASSERT_TRUE(data.has_value());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(data->bytes.data()) % 4, 0u);
    EXPECT_EQ(read_floats(**source, "t").value(), (std::vector<float>{1.5f, 2.5f}));
  }
}

TEST(Safetensors, RefusesBadHeaders) {
  const auto expect = [](const std::string& file, const std::string& words) {
    const std::string problem = problem_of(file);
    EXPECT_NE(problem.find(words), std::string::npos) << "got \"" << problem << "\", expected \"" << words << "\"";
  };
  const auto header = [](const std::string& text) { return safetensors_file(text, "12345678"); };
  const std::string good = safetensors_entry("t", "F32", "[2]", 0, 8);
  EXPECT_EQ(problem_of(header(braces(good))), "");
  expect("", "too short");
  expect("PK\x03\x04 not a model", "is no safetensors file");
  expect(raw<uint64_t>(1ull << 60) + "{}", "longer than the file");
  expect(raw<uint64_t>(25u << 20) + std::string("{") + std::string(25u << 20, ' '), "at most");
  expect(header(std::string("{") + good), "valid JSON");
  expect(header(braces(good + "," + good)), "overlap");
  expect(header(R"({"t":{"dtype":"F4","shape":[2],"data_offsets":[0,8]}})"), "dtype F4 is not supported");
  expect(header(R"({"t":{"dtype":1,"shape":[2],"data_offsets":[0,8]}})"), "tensor t: a number where none");
  expect(header(R"({"t":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})"), "-2 is negative");
  expect(header(R"({"t":{"dtype":"F32","shape":[2.5],"data_offsets":[0,8]}})"), "no whole number");
  expect(header(R"({"t":{"dtype":"F32","shape":[99999999999999999999],"data_offsets":[0,8]}})"), "no whole number");
  expect(header(R"({"t":{"dtype":"F32","shape":[2],"data_offsets":[0]}})"), "two numbers");
  expect(header(R"({"t":{"dtype":"F32","shape":[2],"data_offsets":[0,8,9]}})"), "two numbers");
  expect(header(R"({"t":{"dtype":"F32","shape":[2]}})"), "must have");
  expect(header(R"({"t":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"more":1}})"), "unknown field more");
  expect(header(R"({"t":{"dtype":"F32","shape":[1,1,1,1,1,1,1,1,2],"data_offsets":[0,8]}})"), "dimensions");
  expect(header(R"({"t":{"dtype":"F32","shape":[[2]],"data_offsets":[0,8]}})"), "array where none");
  expect(header(R"({"t":{"dtype":"F32","shape":{},"data_offsets":[0,8]}})"), "object where none");
  expect(header(R"({"t":[1]})"), "array where none");
  expect(header(R"({"t":null})"), "null where none");
  expect(header(braces(safetensors_entry("t", "F32", "[4294967296,4294967296]", 0, 8))), "overflows");
  expect(header(braces(safetensors_entry("t", "F32", "[4294967296,4294967296,0]", 0, 0))), "overflows");
  expect(header(braces(safetensors_entry("t", "F32", "[3]", 0, 8))), "do not fit");
  expect(header(braces(safetensors_entry("t", "F32", "[2]", 8, 0))), "do not fit");
  expect(header(braces(safetensors_entry("t", "F32", "[2]", 4, 12))), "ends at byte 12");
  expect(header(braces(safetensors_entry("t", "F32", "[1]", 4, 8))), "a hole");
  expect(header(braces(safetensors_entry("t", "F32", "[1]", 0, 4))), "behind its last tensor");
  expect(header(braces(safetensors_entry("t", "F32", "[1]", 0, 4) + "," + safetensors_entry("t", "F32", "[1]", 4, 8))),
         "appears twice");
  expect(header(braces(safetensors_entry("", "F32", "[2]", 0, 8))), "tensor name");
}

TEST(Safetensors, SurvivesTruncationAndDamage) {
  const std::string file = two_tensors();
  for (size_t size = 0; size < file.size(); ++size) EXPECT_NE(problem_of(file.substr(0, size)), "") << size;
  std::mt19937 random(11);
  for (int i = 0; i < 20000; ++i) {
    std::string damaged = file;
    for (int j = 0; j < 1 + i % 3; ++j) damaged[random() % damaged.size()] = static_cast<char>(random());
    (void)problem_of(damaged);
  }
}

// Headers built to make a reader allocate: many tiny tensors, deep nesting, long strings.
TEST(Safetensors, HostileHeadersAllocateLittle) {
  const auto peak = [] {
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
  };
  std::string many = "{";
  for (int i = 0; many.size() < (23u << 20); ++i) many += safetensors_entry(std::to_string(i), "I8", "[0]", 0, 0) + ",";
  many.back() = '}';
  std::vector<std::string> files;
  files.push_back(safetensors_file(many, ""));
  files.push_back(safetensors_file("{\"a\":" + std::string(23u << 20, '['), ""));
  files.push_back(safetensors_file("{\"" + std::string(23u << 20, 'x') + "\":1}", ""));
  [[maybe_unused]] const auto before = peak();
  for (const std::string& file : files) EXPECT_NE(problem_of(file), "");
#if !BOLIDE_ADDRESS_SANITIZER && !BOLIDE_THREAD_SANITIZER
  EXPECT_LT(peak() - before, 100 * 1024) << "kB";
#endif
}

std::string index_of(const std::vector<std::pair<std::string, std::string>>& map) {
  std::string text;
  for (const auto& [tensor, file] : map) text += fmt::format("{}\"{}\":\"{}\"", text.empty() ? "" : ",", tensor, file);
  return "{\"metadata\":{\"total_size\":8,\"x\":[1,{}]},\"weight_map\":{" + text + "}}";
}

std::string one(const std::string& name, float value) {
  return safetensors_file(braces(safetensors_entry(name, "F32", "[1]", 0, 4)), floats({value}));
}

TEST(SafetensorsIndex, JoinsShards) {
  const test::TemporaryFolder folder;
  folder.write("m1.safetensors", one("a", 1));
  folder.write("m2.safetensors", one("b", 2));
  const auto source = SafetensorsSource::open_index(
      folder.write("model.safetensors.index.json", index_of({{"a", "m1.safetensors"}, {"b", "m2.safetensors"}})));
  ASSERT_TRUE(source.has_value()) << source.error().text;
  EXPECT_EQ(read_floats(**source, "b").value(), std::vector<float>{2});
}

TEST(SafetensorsIndex, RefusesBadOnes) {
  const test::TemporaryFolder outer;
  outer.write("secret.safetensors", one("a", 1));
  outer.write("model/m1.safetensors", one("a", 1));
  outer.write("model/m2.safetensors", one("a", 1));
  std::filesystem::create_symlink("../secret.safetensors", outer.path() / "model" / "link.safetensors");
  std::filesystem::create_symlink("loop.safetensors", outer.path() / "model" / "loop.safetensors");
  const auto expect = [&](const std::string& index, const std::string& words) {
    const auto source = SafetensorsSource::open_index(outer.write("model/model.safetensors.index.json", index));
    ASSERT_FALSE(source.has_value()) << words;
    EXPECT_NE(source.error().text.find(words), std::string::npos) << source.error().text;
  };
  expect(index_of({{"a", "../secret.safetensors"}}), "leads out of the folder");
  expect(index_of({{"a", (outer.path() / "secret.safetensors").string()}}), "leads out of the folder");
  expect(index_of({{"a", "link.safetensors"}}), "leads out of the folder");
  expect(index_of({{"a", "loop.safetensors"}}), "is missing");
  expect(index_of({{"a", "absent.safetensors"}}), "absent.safetensors is missing");
  expect(index_of({{"a", ""}}), "file name");
  expect(index_of({{"a", "."}}), "is a directory");
  expect(index_of({{"b", "m1.safetensors"}}), "tensor b is not in m1.safetensors");
  expect(index_of({{"a", "m1.safetensors"}, {"b", "m2.safetensors"}}), "also in another shard");
  expect(index_of({{"a", "m1.safetensors"}, {"a", "m1.safetensors"}}), "appears twice");
  expect("{}", "no weight_map");
  expect("{\"weight_map\":{}}", "no weight_map");
  expect("{\"weight_map\":{\"a\":1}}", "must map names");
  expect("{\"weight_map\":{\"a\":{\"b\":\"c\"}}}", "must map names");
  expect("{\"weight_map\":", "valid JSON");
}

// huggingface_hub's cache links from snapshots/<revision>/ to blobs/.
TEST(SafetensorsIndex, FollowsTheDownloadCache) {
  const test::TemporaryFolder cache;
  cache.write("blobs/0123", one("a", 4));
  const auto index = cache.write("snapshots/main/model.safetensors.index.json", index_of({{"a", "m1.safetensors"}}));
  std::filesystem::create_symlink("../../blobs/0123", cache.path() / "snapshots" / "main" / "m1.safetensors");
  const auto source = SafetensorsSource::open_index(index);
  ASSERT_TRUE(source.has_value()) << source.error().text;
  EXPECT_EQ(read_floats(**source, "a").value(), std::vector<float>{4});
}

}  // namespace
}  // namespace bolide
