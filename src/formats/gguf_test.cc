#include "formats/gguf.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <random>

#include "base/sanitizers.h"
#include "formats/test_files.h"

namespace bolide {
namespace {

using test::GgufBuilder;
using test::raw;

GgufBuilder small() {
  GgufBuilder file;
  file.text("general.architecture", "llama").u32("general.alignment", 32);
  file.texts("words", {"a", "", "long enough to need memory"});
  file.entry("numbers", 9, raw<uint32_t>(5) + raw<uint64_t>(3) + raw<int32_t>(1) + raw<int32_t>(-2) + raw<int32_t>(3));
  file.floats("a", {3, 2}, {1, 2, 3, 4, 5, 6});
  file.floats("b", {4}, {7, 8, 9, 10});
  return file;
}

std::string problem_of(const std::string& file) {
  const auto header = GgufHeader::parse(as_bytes(file), "file.gguf");
  if (header) return "";
  EXPECT_TRUE(header.error().text.starts_with("file.gguf: ")) << header.error().text;
  EXPECT_LT(header.error().text.size(), 400u);
  return header.error().text;
}

TEST(Gguf, ReadsMetadataAndTensors) {
  const std::string file = small().build();
  const auto header = GgufHeader::parse(as_bytes(file), "file.gguf");
  ASSERT_TRUE(header.has_value()) << header.error().text;
  EXPECT_EQ(header->find("general.architecture")->string(), "llama");
  EXPECT_EQ(*header->find("words")->strings(), (std::vector<std::string_view>{"a", "", "long enough to need memory"}));
  EXPECT_EQ(*header->find("numbers")->integers(), (std::vector<int64_t>{1, -2, 3}));
  EXPECT_EQ(*header->find("numbers")->numbers(), (std::vector<double>{1, -2, 3}));
  EXPECT_EQ(header->find("absent"), nullptr);
  ASSERT_EQ(header->tensors.size(), 2u);
  EXPECT_EQ(header->tensors[0].info.shape, (Shape{2, 3}));
  EXPECT_EQ(load_unaligned<float>(as_bytes(file).data() + header->tensors[1].offset), 7.0f);
}

TEST(Gguf, ReadsEveryMetadataType) {
  GgufBuilder file;
  file.entry("u8", 0, raw<uint8_t>(200)).entry("i8", 1, raw<int8_t>(-100));
  file.entry("u16", 2, raw<uint16_t>(60000)).entry("i16", 3, raw<int16_t>(-30000));
  file.entry("u32", 4, raw<uint32_t>(4000000000)).entry("i32", 5, raw<int32_t>(-2000000000));
  file.entry("u64", 10, raw<uint64_t>(1ull << 40)).entry("i64", 11, raw<int64_t>(-(1ll << 40)));
  file.entry("f32", 6, raw<float>(0.5f)).entry("f64", 12, raw<double>(0.25)).entry("bool", 7, raw<uint8_t>(1));
  file.entry("huge", 10, raw<uint64_t>(UINT64_MAX));
  const std::string inner = raw<uint32_t>(2) + raw<uint64_t>(2) + raw<uint16_t>(7) + raw<uint16_t>(8);
  file.entry("nested", 9, raw<uint32_t>(9) + raw<uint64_t>(2) + inner + inner);
  const std::string bytes = file.build();
  const auto header = GgufHeader::parse(as_bytes(bytes), "file.gguf");
  ASSERT_TRUE(header.has_value()) << header.error().text;
  const auto integer = [&](const char* key) { return header->find(key)->integer().value(); };
  EXPECT_EQ(integer("u8"), 200);
  EXPECT_EQ(integer("i8"), -100);
  EXPECT_EQ(integer("u16"), 60000);
  EXPECT_EQ(integer("i16"), -30000);
  EXPECT_EQ(integer("u32"), 4000000000);
  EXPECT_EQ(integer("i32"), -2000000000);
  EXPECT_EQ(integer("u64"), 1ll << 40);
  EXPECT_EQ(integer("i64"), -(1ll << 40));
  EXPECT_EQ(header->find("f32")->number(), 0.5);
  EXPECT_EQ(header->find("f64")->number(), 0.25);
  EXPECT_EQ(header->find("bool")->boolean(), true);
  EXPECT_EQ(header->find("huge")->integer(), std::nullopt);
  EXPECT_EQ(header->find("u8")->string(), std::nullopt);
  const auto arrays = header->find("nested")->arrays();
  ASSERT_TRUE(arrays.has_value());
  ASSERT_EQ(arrays->size(), 2u);
  EXPECT_EQ((*arrays)[1].integers(), (std::vector<int64_t>{7, 8}));
  EXPECT_FALSE(header->integer("f64", "file.gguf").has_value());
}

TEST(Gguf, KnowsEveryTensorType) {
  const std::vector<std::pair<uint32_t, const QuantScheme*>> blocks = {
      {2, &kQ4_0},  {3, &kQ4_1},  {6, &kQ5_0},  {7, &kQ5_1},  {8, &kQ8_0},    {10, &kQ2_K},
      {11, &kQ3_K}, {12, &kQ4_K}, {13, &kQ5_K}, {14, &kQ6_K}, {20, &kIQ4_NL}, {23, &kIQ4_XS}};
  for (const auto& [type, scheme] : blocks) {
    const auto row = static_cast<size_t>(512 / scheme->block_elements * scheme->block_bytes);
    GgufBuilder file;
    file.tensor("t", {512, 3}, type, std::string(3 * row, 'x'));
    const std::string bytes = file.build();
    const auto header = GgufHeader::parse(as_bytes(bytes), "file.gguf");
    ASSERT_TRUE(header.has_value()) << header.error().text;
    EXPECT_EQ(header->tensors[0].info.quant, scheme);
    EXPECT_EQ(header->tensors[0].size, 3 * row);
  }
  const std::vector<std::pair<uint32_t, DType>> plain = {{0, DType::kF32},  {1, DType::kF16},  {24, DType::kI8},
                                                         {25, DType::kI16}, {26, DType::kI32}, {27, DType::kI64},
                                                         {28, DType::kF64}, {30, DType::kBF16}};
  for (const auto& [type, dtype] : plain) {
    GgufBuilder file;
    file.tensor("t", {5}, type, std::string(5 * static_cast<size_t>(bits_of(dtype)) / 8, 'x'));
    const std::string bytes = file.build();
    const auto header = GgufHeader::parse(as_bytes(bytes), "file.gguf");
    ASSERT_TRUE(header.has_value()) << header.error().text;
    EXPECT_EQ(header->tensors[0].info.dtype, dtype);
  }
}

TEST(Gguf, RefusesBadFiles) {
  const auto expect = [](const GgufBuilder& file, const std::string& words) {
    const std::string problem = problem_of(file.build());
    EXPECT_NE(problem.find(words), std::string::npos) << "got \"" << problem << "\", expected \"" << words << "\"";
  };
  const auto with = [](auto change) {
    GgufBuilder file = small();
    change(file);
    return file;
  };
  expect(with([](auto& f) { f.magic = "GGML"; }), "is no GGUF file");
  expect(with([](auto& f) { f.version = 1; }), "version 1");
  expect(with([](auto& f) { f.version = 0x03000000; }), "big-endian");
  expect(with([](auto& f) { f.extra_entries = 1'000'000'000; }), "metadata entries");
  expect(with([](auto& f) { f.extra_entries = UINT64_MAX - 4; }), "metadata entries");
  expect(with([](auto& f) { f.extra_tensors = 1'000'000'000; }), "tensors");
  expect(with([](auto& f) { f.text("words", "again"); }), "words appears twice");
  expect(with([](auto& f) { f.text("", "x"); }), "empty key");
  expect(with([](auto& f) { f.entry("k", 13, ""); }), "unknown value type 13");
  expect(with([](auto& f) { f.entry("k", 8, raw<uint64_t>(1ull << 62)); }), "truncated or damaged");
  expect(with([](auto& f) { f.entry("k", 9, raw<uint32_t>(4) + raw<uint64_t>(1ull << 62)); }), "elements in k");
  expect(with([](auto& f) { f.entry("k", 9, raw<uint32_t>(8) + raw<uint64_t>(1'000'000'000)); }), "elements in k");
  std::string nest;
  for (int i = 0; i < 100; ++i) nest += raw<uint32_t>(9) + raw<uint64_t>(1);
  expect(with([&](auto& f) { f.entry("k", 9, nest); }), "nested deeper");
  expect(with([](auto& f) { f.entries[1] = GgufBuilder().u32("general.alignment", 0).entries[0]; }),
         "general.alignment");
  expect(with([](auto& f) { f.entries[1] = GgufBuilder().u32("general.alignment", 48).entries[0]; }), "power of two");
  expect(with([](auto& f) { f.entries[1] = GgufBuilder().text("general.alignment", "x").entries[0]; }), "an integer");
  expect(with([](auto& f) { f.tensor_at("c", {0, 4}, 0, 64); }), "dimension 0 is 0");
  expect(with([](auto& f) { f.tensor_at("c", {4, -4}, 0, 64); }), "dimension 1 is -4");
  expect(with([](auto& f) { f.tensor_at("c", {1ll << 40, 1ll << 40}, 0, 64); }), "overflows");
  expect(with([](auto& f) { f.tensor_at("c", {1ll << 31, 1ll << 31}, 27, 64); }), "overflows");
  expect(with([](auto& f) { f.tensor_at("c", {}, 0, 64); }), "has 0 dimensions");
  expect(with([](auto& f) { f.tensor_at("c", {1, 1, 1, 1, 1}, 0, 64); }), "has 5 dimensions");
  expect(with([](auto& f) { f.tensor_at("c", {4}, 16, 64); }), "tensor c: type IQ2_XXS is not supported");
  expect(with([](auto& f) { f.tensor_at("c", {4}, 99, 64); }), "tensor c: type number 99");
  expect(with([](auto& f) { f.tensor_at("c", {33}, 8, 64); }), "rows of 33 elements");
  expect(with([](auto& f) { f.tensor_at("c", {4}, 0, 64); }), "beyond the end");
  expect(with([](auto& f) { f.tensor_at("c", {4}, 0, 1ull << 40); }), "beyond the end");
  expect(with([](auto& f) { f.tensor_at("c", {4}, 0, UINT64_MAX - 31); }), "beyond the end");
  expect(with([](auto& f) { f.tensor_at("c", {1}, 0, 33); }), "alignment");
  expect(with([](auto& f) { f.tensor_at("c", {1}, 0, 32); }), "overlap");
  expect(with([](auto& f) { f.floats("a", {1}, {1}); }), "tensor a appears twice");
  expect(with([](auto& f) { f.floats("", {1}, {1}); }), "empty name");
  expect(with([](auto& f) { f.floats(std::string(300, 'n'), {1}, {1}); }), "length of 300");
  EXPECT_NE(problem_of("").find("is no GGUF file"), std::string::npos);
}

// Whatever the end or any byte of the file becomes: an error or a header, never a read outside (seen by sanitizers).
TEST(Gguf, SurvivesTruncationAndDamage) {
  const std::string file = small().build();
  for (size_t size = 0; size < file.size(); ++size) {
    const std::string part(file.data(), size);
    EXPECT_NE(problem_of(part), "") << size;
  }
  std::mt19937 random(7);
  for (int i = 0; i < 20000; ++i) {
    std::string damaged = file;
    for (int j = 0; j < 1 + i % 3; ++j) damaged[random() % damaged.size()] = static_cast<char>(random());
    const auto header = GgufHeader::parse(as_bytes(damaged), "file.gguf");
    if (!header) continue;
    for (const auto& [key, value] : header->metadata) {
      (void)value.strings();
      (void)value.numbers();
      (void)value.arrays();
    }
  }
}

// The most that the limits allow, all of it well-formed but for the last tensor.
TEST(Gguf, HostileFilesAllocateLittle) {
  const auto peak = [] {
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
  };
  GgufBuilder file;
  for (int i = 0; i < 65000; ++i) file.u32(std::to_string(i), 0);
  for (int i = 0; i < 131000; ++i) file.tensor_at(std::to_string(i) + std::string(100, 'n'), {8}, 0, 0);
  file.data = std::string(64, '\0');
  const std::string bytes = file.build();
  [[maybe_unused]] const auto before = peak();
  EXPECT_NE(problem_of(bytes).find("overlap"), std::string::npos);
#if !BOLIDE_ADDRESS_SANITIZER && !BOLIDE_THREAD_SANITIZER
  EXPECT_LT(peak() - before, 100 * 1024) << "kB";
#endif
}

TEST(GgufSource, MapsOneFile) {
  const test::TemporaryFolder folder;
  const auto source = GgufSource::open_file(folder.write("m.gguf", small().build()));
  ASSERT_TRUE(source.has_value()) << source.error().text;
  const auto a = read_floats(**source, "a");
  ASSERT_TRUE(a.has_value());
  EXPECT_EQ(*a, (std::vector<float>{1, 2, 3, 4, 5, 6}));
  const auto data = (*source)->open("a");
  EXPECT_TRUE(data->mapped);
  data->release();
  EXPECT_EQ(load_unaligned<float>(data->bytes.data()), 1.0f);
  EXPECT_EQ((*source)->names(), (std::vector<std::string>{"a", "b"}));
  EXPECT_FALSE((*source)->open("c").has_value());
}

TEST(GgufSource, RefusesWhatIsNoFile) {
  const test::TemporaryFolder folder;
  const auto problem = [](const std::filesystem::path& path) {
    const auto source = GgufSource::open_file(path);
    return source ? std::string() : source.error().text;
  };
  EXPECT_NE(problem(folder.path() / "absent.gguf").find("no such file"), std::string::npos);
  EXPECT_NE(problem(folder.path()).find("is a directory"), std::string::npos);
  ASSERT_EQ(::mkfifo((folder.path() / "pipe.gguf").c_str(), 0600), 0);
  EXPECT_NE(problem(folder.path() / "pipe.gguf").find("not a regular file"), std::string::npos);
  const auto pointer = folder.write("lfs.gguf", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n");
  EXPECT_NE(problem(pointer).find("Git LFS pointer"), std::string::npos);
  EXPECT_NE(problem(folder.write("empty.gguf", "")).find("is empty"), std::string::npos);
}

std::string shard(uint16_t index, uint16_t count, int32_t tensors, const std::string& name, float value) {
  GgufBuilder file;
  file.entry("split.no", 2, raw(index)).entry("split.count", 2, raw(count));
  file.entry("split.tensors.count", 5, raw(tensors));
  if (index == 0) file.text("general.architecture", "llama");
  file.floats(name, {1}, {value});
  return file.build();
}

TEST(GgufSource, JoinsShardsFromAnyOfThem) {
  const test::TemporaryFolder folder;
  folder.write("m-00001-of-00003.gguf", shard(0, 3, 3, "a", 1));
  folder.write("m-00002-of-00003.gguf", shard(1, 3, 3, "b", 2));
  folder.write("m-00003-of-00003.gguf", shard(2, 3, 3, "c", 3));
  for (const char* name : {"m-00001-of-00003.gguf", "m-00002-of-00003.gguf", "m-00003-of-00003.gguf"}) {
    const auto source = GgufSource::open_file(folder.path() / name);
    ASSERT_TRUE(source.has_value()) << source.error().text;
    EXPECT_EQ(read_floats(**source, "c").value(), std::vector<float>{3});
    EXPECT_EQ((*source)->header().find("general.architecture")->string(), "llama");
  }
}

TEST(GgufSource, RefusesShardsThatDoNotFit) {
  const auto problem = [](const std::string& first, const std::string& second, const std::string& second_name) {
    const test::TemporaryFolder folder;
    folder.write("m-00001-of-00002.gguf", first);
    if (!second_name.empty()) folder.write(second_name, second);
    const auto source = GgufSource::open_file(folder.path() / "m-00001-of-00002.gguf");
    return source ? std::string() : source.error().text;
  };
  const std::string first = shard(0, 2, 2, "a", 1);
  const std::string second = shard(1, 2, 2, "b", 2);
  const std::string name = "m-00002-of-00002.gguf";
  EXPECT_EQ(problem(first, second, name), "");
  EXPECT_NE(problem(first, second, "").find("m-00002-of-00002.gguf: shard 2 of 2 is missing"), std::string::npos);
  EXPECT_NE(problem(first, first, name).find("mixed up"), std::string::npos);  // a cycle: shard 1 again
  EXPECT_NE(problem(first, shard(1, 3, 2, "b", 2), name).find("mixed up"), std::string::npos);
  EXPECT_NE(problem(first, shard(1, 2, 2, "a", 2), name).find("also in another shard"), std::string::npos);
  EXPECT_NE(problem(shard(0, 2, 7, "a", 1), second, name).find("split.tensors.count is 7"), std::string::npos);
  EXPECT_NE(problem(shard(0, 3, 3, "a", 1), second, name).find("original names"), std::string::npos);
  const test::TemporaryFolder folder;
  const auto renamed = GgufSource::open_file(folder.write("model.gguf", first));
  ASSERT_FALSE(renamed.has_value());
  EXPECT_NE(renamed.error().text.find("one of 2 shards"), std::string::npos);
}

}  // namespace
}  // namespace bolide
