// Weights on their way to a device, which here is the CPU: its memory can be looked at.
#include "plan/weight_upload.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>

#include "plan/plan.h"
#include "plan/random_graph.h"

namespace bolide {
namespace {

// Weights of every type, as matrices, in stacks and as vectors, some of several parts of several tensors.
struct Weights {
  Graph graph;
  test::MemorySource source;
  std::vector<WeightStore::Use> uses;

  explicit Weights(std::mt19937& random) {
    std::vector<ValueType> types = {f32({}), {DType::kBF16}, {DType::kF16}, {DType::kF8E4M3}, {DType::kI8}};
    for (const QuantScheme* quant : block_schemes()) types.push_back({quant->code, quant});
    for (const ValueType& type : types) {
      const auto rows = static_cast<int64_t>(1 + random() % 150);
      add(type, {rows, 256}, random);
      add(type, {static_cast<int64_t>(2 + random() % 4), static_cast<int64_t>(1 + random() % 40), 256}, random);
    }
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) add({dtype}, {77}, random);
  }

  void add(ValueType type, std::vector<int64_t> dims, std::mt19937& random) {
    const bool vector = dims.size() == 1;
    for (const int64_t dim : dims) type.dims.emplace_back(dim);
    int64_t rows = dims[0];
    if (dims.size() > 2) rows *= dims[1];
    // Cut between two tensors, each with rows before and behind that are not used.
    std::vector<WeightPart> parts;
    const auto first = static_cast<int64_t>(random() % static_cast<uint64_t>(rows + 1));
    for (const int64_t count : {first, rows - first}) {
      const std::string name = fmt::format("w{}", next_++);
      const Shape shape = vector ? Shape{count + 3} : Shape{count + 3, dims.back()};
      const size_t row = row_bytes(type.dtype, type.quant, vector ? 1 : dims.back());
      std::vector<std::byte> bytes(static_cast<size_t>(count + 3) * row);
      for (std::byte& b : bytes) b = std::byte{static_cast<uint8_t>(random() & 0x3b)};  // finite whatever the type
      if (type.quant != nullptr && type.quant->name.starts_with("w4_"))
        for (size_t at = 3; at < bytes.size(); at += static_cast<size_t>(type.quant->block_bytes))
          bytes[at] = std::byte{0};  // padding, which layouts leave out
      source.add({name, type.dtype, type.quant, shape}, std::move(bytes));
      if (count > 0) parts.push_back({name, 2, count});
    }
    if (vector) type.dtype = DType::kF32;
    const ValueId id = graph.add_weight(std::move(parts), type);
    uses.emplace_back(id, nullptr);
    for (const char* name : {"strips", "float_strips", "code_strips"})
      if (const Packing* packing = find_packing(name); !vector && packing->bytes(type) > 0)
        uses.emplace_back(id, packing);
  }

  int next_ = 0;
};

struct Machine {
  std::unique_ptr<Device> device = std::move(*make_cpu_device(2, std::nullopt));
  Workers workers{2};
};

void expect_same(const WeightStore& got, const WeightStore& want, const WeightUpload& upload) {
  ASSERT_EQ(got.all().size(), want.all().size());
  for (const StoredWeight& weight : want.all()) {
    const StoredWeight& there = got.find(weight.value, weight.packing);
    ASSERT_EQ(there.bytes, weight.bytes);
    EXPECT_EQ(there.view.dtype, weight.view.dtype);
    EXPECT_EQ(there.view.quant, weight.view.quant);
    EXPECT_EQ(there.view.shape, weight.view.shape);
    EXPECT_EQ(there.owner, upload.owner());
    ASSERT_TRUE(std::equal(weight.view.data, weight.view.data + weight.bytes, there.view.data))
        << "%" << weight.value << " in " << (weight.packing == nullptr ? "rows" : weight.packing->name);
  }
}

TEST(WeightUpload, GivesTheBytesOfTheHost) {
  std::mt19937 random(std::random_device{}());
  Machine machine;
  for (const size_t piece : {size_t{1000}, size_t{20000}, size_t{64} << 20}) {
    const Weights weights(random);
    const auto want = WeightStore::pack(weights.graph, weights.uses, weights.source, machine.workers);
    ASSERT_TRUE(want.has_value()) << want.error().text;
    auto upload = WeightUpload::make(*machine.device, {.piece_bytes = piece});
    ASSERT_TRUE(upload.has_value());
    const auto got = WeightStore::pack(weights.graph, weights.uses, weights.source, machine.workers, nullptr, &*upload);
    ASSERT_TRUE(got.has_value()) << got.error().text;
    expect_same(*got, *want, *upload);
  }
}

TEST(WeightUpload, AdoptsWhatIsPackedAndRepacksTheRest) {
  std::mt19937 random(std::random_device{}());
  Machine machine;
  const Weights weights(random);
  const auto want = WeightStore::pack(weights.graph, weights.uses, weights.source, machine.workers);
  ASSERT_TRUE(want.has_value());
  // One layout of each weight, whichever.
  std::map<ValueId, StoredWeight> chosen;
  for (const StoredWeight& weight : want->all())
    if (!chosen.contains(weight.value) || random() % 2 == 0) chosen[weight.value] = weight;
  std::vector<StoredWeight> have;
  for (const auto& [id, weight] : chosen) have.push_back(weight);
  auto upload = WeightUpload::make(*machine.device, {.piece_bytes = 5000});
  ASSERT_TRUE(upload.has_value());
  int repacked = 0;
  const auto got = WeightStore::adopt(weights.graph, weights.uses, have, machine.workers, &repacked, &*upload);
  ASSERT_TRUE(got.has_value()) << got.error().text;
  EXPECT_EQ(repacked, static_cast<int>(weights.uses.size() - have.size()));
  expect_same(*got, *want, *upload);
}

class CountingSource final : public WeightSource {
 public:
  explicit CountingSource(const WeightSource& source) : source_(source) {}
  const WeightInfo* find(std::string_view name) const override { return source_.find(name); }
  Result<WeightData> open(std::string_view name) const override {
    ++opened;
    return source_.open(name);
  }
  std::vector<std::string> names() const override { return source_.names(); }
  const std::string& label() const override { return source_.label(); }
  mutable int opened = 0;

 private:
  const WeightSource& source_;
};

// The CPU with little memory left.
class FullDevice final : public Device {
 public:
  explicit FullDevice(Device& device) : device_(device) {}
  Result<Buffer> allocate(size_t bytes, Memory memory) override { return device_.allocate(bytes, memory); }
  Result<std::unique_ptr<Stream>> make_stream() override { return device_.make_stream(); }
  Result<std::unique_ptr<Event>> make_event() override { return device_.make_event(); }
  Result<size_t> free_memory() override { return size_t{100000}; }
  const DeviceInfo& info() const override { return device_.info(); }

 private:
  Device& device_;
};

TEST(WeightUpload, TooLittleMemoryIsSaidBeforeAnythingIsPacked) {
  std::mt19937 random(1);
  Machine machine;
  const Weights weights(random);
  const CountingSource source(weights.source);
  FullDevice full(*machine.device);
  auto upload = WeightUpload::make(full);
  ASSERT_TRUE(upload.has_value());
  const auto done = WeightStore::pack(weights.graph, weights.uses, source, machine.workers, nullptr, &*upload);
  ASSERT_FALSE(done.has_value());
  EXPECT_EQ(done.error().code, Code::kOutOfMemory);
  const auto needed = static_cast<double>(WeightStore::device_bytes(weights.graph, weights.uses)) / 1e6;
  EXPECT_NE(done.error().text.find(fmt::format("need {:.1f} MB", needed)), std::string::npos) << done.error().text;
  EXPECT_NE(done.error().text.find("has 0.1 MB free"), std::string::npos) << done.error().text;
  EXPECT_EQ(source.opened, 0);
}

TEST(WeightUpload, DamagedRowsAreCountedFromTheTensorsBeginning) {
  Machine machine;
  Graph graph;
  test::MemorySource source;
  std::vector<float> values(208 * 64, 0.5f);
  values[150 * 64 + 3] = std::numeric_limits<float>::quiet_NaN();
  source.add("model.proj.weight", {208, 64}, values);
  const ValueId id = graph.add_weight({{"model.proj.weight", 0, 208}}, f32({208, 64}));
  const std::vector<WeightStore::Use> uses = {{id, find_packing("float_strips")}};
  auto upload = WeightUpload::make(*machine.device, {.piece_bytes = 64 * 64 * 4});
  ASSERT_TRUE(upload.has_value());
  const auto done = WeightStore::pack(graph, uses, source, machine.workers, nullptr, &*upload);
  ASSERT_FALSE(done.has_value());
  EXPECT_NE(done.error().text.find("model.proj.weight"), std::string::npos) << done.error().text;
  EXPECT_NE(done.error().text.find("counting from row 128: row 22 "), std::string::npos) << done.error().text;
}

}  // namespace
}  // namespace bolide
