#include "bolide/network.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <thread>

#include "api/onnx_for_test.h"

namespace bolide {
namespace {

std::vector<float> normal_numbers(size_t n, unsigned seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(n);
  for (float& value : values) value = normal(engine);
  return values;
}

// sum = a + b, same = a, scaled = sum * factor by an operator of the tests' own.
class NetworkTest : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = testing::TempDir() + "network_test.onnx";
    write_onnx(path_,
               {onnx_node("Add", {"a", "b"}, {"sum"}), onnx_node("Identity", {"a"}, {"same"}),
                onnx_node("Scale", {"sum"}, {"scaled"}, "example",
                          {ProtoText().text(1, "factor").number(2, 2.5f).integer(20, 1),
                           ProtoText().text(1, "mode").text(4, "all").integer(20, 3)})},
               {onnx_port("a", kOnnxFloat, {"N", "3"}), onnx_port("b", kOnnxFloat, {"N", "3"})},
               {onnx_port("sum", kOnnxFloat, {"N", "3"}), onnx_port("same", kOnnxFloat, {"N", "3"}),
                onnx_port("scaled", kOnnxFloat, {"N", "3"})});
    options_.threads = 1;
    options_.operators.push_back(
        {.domain = "example", .name = "Scale", .run = [this](OperatorCall& call) { return scale(call); }});
  }

  Status scale(OperatorCall& call) const {
    if (call.inputs() != 1 || call.outputs() != 1 || call.input(1) || call.text("mode") != "all" ||
        call.integer("factor").has_value() || call.integer("absent").has_value())
      return {StatusCode::kInternal, "is not what the file says"};
    const auto from = call.input(0).as<float>();
    if (std::any_of(from.begin(), from.end(), [](float x) { return x > 1e6f; }))
      return {StatusCode::kUnsupported, "too large a number"};
    auto made = call.output(0, ElementType::kF32, call.input(0).dims());
    if (!made) return made.status();
    const auto to = made->mutate<float>();
    for (size_t i = 0; i < to.size(); ++i) to[i] = from[i] * call.number("factor").value_or(0);
    return {};
  }

  Network open() {
    auto network = Network::open(path_, options_);
    EXPECT_TRUE(network) << network.status().message;
    return *std::move(network);
  }

  std::string path_;
  NetworkOptions options_;
};

void expect_refused(const Expected<NamedArrays>& result, StatusCode code, const std::vector<std::string>& words) {
  ASSERT_FALSE(result);
  EXPECT_EQ(result.status().code, code) << result.status().message;
  for (const std::string& word : words)
    EXPECT_NE(result.status().message.find(word), std::string::npos) << word << ": " << result.status().message;
}

const std::vector<int64_t> kDims = {2, 3};

TEST_F(NetworkTest, SaysWhatItTakesAndGives) {
  const Network network = open();
  ASSERT_EQ(network.inputs().size(), 2u);
  ASSERT_EQ(network.outputs().size(), 3u);
  const Port& port = network.inputs()[1];
  EXPECT_EQ(port.name, "b");
  EXPECT_EQ(port.type, ElementType::kF32);
  EXPECT_EQ(port.text, "f32[N,3]");
  ASSERT_TRUE(port.dims.has_value());
  EXPECT_EQ((*port.dims)[0].size, -1);
  EXPECT_EQ((*port.dims)[0].symbol, "N");
  EXPECT_EQ((*port.dims)[1].size, 3);
  EXPECT_EQ(network.outputs()[2].name, "scaled");
}

TEST_F(NetworkTest, TwoThreadsWithTheirSessionsAndTheSharedOnes) {
  const Network network = open();
  std::array<std::string, 4> wrong;
  std::vector<std::thread> threads;
  for (size_t t = 0; t < wrong.size(); ++t)
    threads.emplace_back([&, t] {
      auto session = network.session();
      for (unsigned i = 0; i < 50 && wrong[t].empty(); ++i) {
        const size_t rows = 1 + i % 5;
        const auto a = normal_numbers(rows * 3, i * 8 + static_cast<unsigned>(t)),
                   b = normal_numbers(rows * 3, i * 8 + 4);
        const std::vector<int64_t> dims = {static_cast<int64_t>(rows), 3};
        const NamedArrays inputs = {{"b", Array::view<float>(b, dims)}, {"a", Array::view<float>(a, dims)}};
        const auto outputs = t % 2 == 0 ? session->run(inputs) : network.run(inputs);
        if (!outputs) {
          wrong[t] = outputs.status().message;
          break;
        }
        if ((*outputs)[2].array.dims() != dims) wrong[t] = "dims";
        for (size_t k = 0; k < a.size(); ++k)
          if ((*outputs)[2].array.as<float>()[k] != (a[k] + b[k]) * 2.5f || (*outputs)[1].array.as<float>()[k] != a[k])
            wrong[t] = "values of run " + std::to_string(i);
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::string& text : wrong) EXPECT_EQ(text, "");
}

TEST_F(NetworkTest, OutputsOutliveSessionAndNetworkAndNeverReferToInputs) {
  auto a = normal_numbers(6, 1);
  const auto b = normal_numbers(6, 2);
  std::optional<NamedArrays> outputs;
  {
    const Network network = open();
    auto session = network.session();
    outputs = *session->run({{"a", Array::view<float>(a, kDims)}, {"b", Array::view<float>(b, kDims)}});
  }
  const auto before = a;
  std::fill(a.begin(), a.end(), 0.0f);
  const auto same = (*outputs)[1].array.as<float>();
  EXPECT_TRUE(std::equal(same.begin(), same.end(), before.begin()));
}

TEST_F(NetworkTest, SharesTheCallersMemoryBothWays) {
  const auto a = normal_numbers(6, 3), b = normal_numbers(6, 4);
  std::vector<float> sum(6), scaled(8, -1.0f), same(6);
  const void* made = nullptr;
  options_.operators = {{.domain = "example",
                         .name = "Scale",
                         .run =
                             [&](OperatorCall& call) {
                               auto output = call.output(0, ElementType::kF32, call.input(0).dims());
                               made = output->data();
                               std::ranges::copy(call.input(0).as<float>(), output->mutate<float>().begin());
                               return Status{};
                             }},
                        {.domain = "ai.onnx", .name = "Identity", .run = [&](OperatorCall& call) {
                           EXPECT_EQ(call.input(0).data(), a.data());
                           auto output = call.output(0, ElementType::kF32, {0});
                           return Status{};
                         }}};
  const Network network = open();
  const auto outputs = network.run({{"a", Array::view<float>(a, kDims)}, {"b", Array::view<float>(b, kDims)}},
                                   {{"scaled", Array::memory<float>(scaled)},
                                    {"sum", Array::memory<float>(sum)},
                                    {"same", Array::memory<float>(same)}});
  ASSERT_TRUE(outputs) << outputs.status().message;
  EXPECT_EQ(made, scaled.data());
  EXPECT_EQ((*outputs)[2].array.data(), scaled.data());
  EXPECT_EQ((*outputs)[2].array.dims(), kDims);
  EXPECT_EQ((*outputs)[2].array.size(), 6u);
  EXPECT_EQ((*outputs)[1].array.size(), 0u);
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(sum[i], a[i] + b[i]);  // whether its op wrote it there or it was copied
    EXPECT_EQ(scaled[i], sum[i]);
  }
  EXPECT_EQ(scaled[6], -1.0f);
}

TEST_F(NetworkTest, WhatIsAViewOfAnInputIsCopiedToMemory) {
  const Network network = open();
  const auto a = normal_numbers(6, 5), b = normal_numbers(6, 6);
  std::vector<float> same(6);
  const auto outputs = network.run({{"a", Array::view<float>(a, kDims)}, {"b", Array::view<float>(b, kDims)}},
                                   {{"same", Array::memory<float>(same)}});
  ASSERT_TRUE(outputs) << outputs.status().message;
  EXPECT_EQ(same, a);
}

TEST_F(NetworkTest, RefusesWhatDoesNotFitAndGoesOn) {
  const Network network = open();
  auto session = network.session();
  auto a = normal_numbers(6, 7);
  const auto b = normal_numbers(6, 8);
  const std::vector<double> doubles(6);
  const NamedArray good_a = {"a", Array::view<float>(a, kDims)}, good_b = {"b", Array::view<float>(b, kDims)};
  const auto run = [&](const NamedArrays& inputs, const NamedArrays& memories = {}) {
    return session->run(inputs, memories);
  };
  const auto with = [&](const Array& array) { return run({good_a, {"b", array}}); };
  expect_refused(run({good_a}), StatusCode::kInvalid, {"input b", "f32[N,3]", "missing"});
  expect_refused(run({good_a, good_b, good_a}), StatusCode::kInvalid, {"input a", "twice"});
  expect_refused(run({good_a, {"c", good_b.array}}), StatusCode::kNotFound, {"input c", "a f32[N,3], b f32[N,3]"});
  expect_refused(with(Array()), StatusCode::kInvalid, {"input b"});
  expect_refused(with(Array::view<double>(doubles, kDims)), StatusCode::kInvalid, {"input b", "f64", "f32[N,3]"});
  expect_refused(with(Array::view<float>(b, {6})), StatusCode::kInvalid, {"input b", "[6]", "f32[N,3]"});
  expect_refused(with(Array::view<float>(b, {3, 2})), StatusCode::kInvalid, {"input b", "[3, 2]", "f32[N,3]"});
  expect_refused(with(Array::view<float>(b, {3, 3})), StatusCode::kInvalid, {"input b", "[3, 3]", "6"});
  expect_refused(with(Array::view<float>(b, {-2, -3})), StatusCode::kInvalid, {"input b", "[-2, -3]"});
  expect_refused(with(Array::view<float>(b, {int64_t{1} << 62, 16})), StatusCode::kInvalid, {"input b"});
  expect_refused(with(Array::view<float>(b, std::vector<int64_t>(9, 1))), StatusCode::kUnsupported, {"9 dims"});
  expect_refused(with(Array::view(ElementType::kF32, kDims, nullptr, 6)), StatusCode::kInvalid, {"without memory"});
  expect_refused(with(Array::view(ElementType::kF32, kDims, reinterpret_cast<const char*>(b.data()) + 1, 6)),
                 StatusCode::kInvalid, {"aligned"});
  std::vector<float> small(5), sum(6);
  std::vector<int64_t> integers(6);
  expect_refused(run({good_a, good_b}, {{"sum", Array::memory<float>(small)}}), StatusCode::kInvalid,
                 {"output sum", "[2, 3]", "5 elements"});
  expect_refused(run({good_a, good_b}, {{"sum", Array::memory<int64_t>(integers)}}), StatusCode::kInvalid,
                 {"output sum", "i64", "f32[N,3]"});
  expect_refused(run({good_a, good_b}, {{"summe", Array::memory<float>(sum)}}), StatusCode::kNotFound,
                 {"output summe"});
  expect_refused(run({good_a, good_b}, {{"sum", good_a.array}}), StatusCode::kInvalid, {"read only"});
  expect_refused(run({good_a, good_b}, {{"sum", Array::memory<float>(a)}}), StatusCode::kInvalid, {"overlaps"});
  a[0] = 1e7f;
  expect_refused(run({good_a, good_b}), StatusCode::kUnsupported, {"Scale", "too large a number"});
  a[0] = 1.0f;
  const auto outputs = run({good_a, good_b});
  ASSERT_TRUE(outputs) << outputs.status().message;
  EXPECT_EQ((*outputs)[0].array.as<float>()[0], 1.0f + b[0]);
}

TEST_F(NetworkTest, OperatorsAreCheckedWhenTheNetworkIsOpened) {
  const auto refused = [&](const std::vector<UserOperator>& operators, StatusCode code, const std::string& word) {
    const auto network = Network::open(path_, {.threads = 1, .operators = operators});
    ASSERT_FALSE(network);
    EXPECT_EQ(network.status().code, code);
    EXPECT_NE(network.status().message.find(word), std::string::npos) << network.status().message;
  };
  const auto nothing = [](OperatorCall&) { return Status{}; };
  refused({}, StatusCode::kUnsupported, "Scale");
  refused({{"example", "Scale", 2, nothing}}, StatusCode::kUnsupported, "Scale");  // the file has version 1
  refused({{"example", "", 1, nothing}}, StatusCode::kInvalid, "name");
  refused({{"example", "Scale", 0, nothing}}, StatusCode::kInvalid, "since");
  refused({{"example", "Scale", 1, nullptr}}, StatusCode::kInvalid, "function");
  refused({{"", "Add", 1, nothing}, {"ai.onnx", "Add", 1, nothing}}, StatusCode::kInvalid, "twice");

  const auto lazy = Network::open(path_, {.threads = 1, .operators = {{"example", "Scale", 1, nothing}}});
  ASSERT_TRUE(lazy) << lazy.status().message;
  const auto a = normal_numbers(6, 9);
  expect_refused(lazy->run({{"a", Array::view<float>(a, kDims)}, {"b", Array::view<float>(a, kDims)}}),
                 StatusCode::kInvalid, {"Scale", "output 0"});
}

TEST(Network, TextsGoInAndOut) {
  const std::string path = testing::TempDir() + "network_test_texts.onnx";
  write_onnx(path, {onnx_node("StringConcat", {"x", "y"}, {"z"})},
             {onnx_port("x", kOnnxString, {"N"}), onnx_port("y", kOnnxString, {"N"})},
             {onnx_port("z", kOnnxString, {"N"})});
  const auto network = Network::open(path, {.threads = 1});
  ASSERT_TRUE(network) << network.status().message;
  const std::vector<std::string> x = {"fire", ""}, y = {"ball", "bolide"};
  std::vector<std::string> z(3, "old");
  const auto outputs = network->run({{"x", Array::view<std::string>(x, {2})}, {"y", Array::view<std::string>(y, {2})}},
                                    {{"z", Array::memory<std::string>(z)}});
  ASSERT_TRUE(outputs) << outputs.status().message;
  EXPECT_EQ(z, (std::vector<std::string>{"fireball", "bolide", "old"}));
  EXPECT_EQ((*outputs)[0].array.as<std::string>()[0], "fireball");
}

TEST(Network, CachesGrowInPlace) {
  const int64_t H = 4, G = 2, D = 8, room = 12;
  const std::string path = testing::TempDir() + "network_test_cache.onnx";
  const auto number = [](std::string_view name, int64_t value) {
    return ProtoText().text(1, name).integer(3, value).integer(20, 2);
  };
  const auto rows = [](int64_t heads) { return std::vector<std::string>{"1", "1", std::to_string(heads * D)}; };
  const std::vector<std::string> cache = {"1", std::to_string(G), "room", std::to_string(D)};
  write_onnx(
      path,
      {onnx_node("GroupQueryAttention", {"q", "k", "v", "past_k", "past_v", "last", "total"},
                 {"y", "present_k", "present_v"}, "com.microsoft",
                 {number("num_heads", H), number("kv_num_heads", G)})},
      {onnx_port("q", kOnnxFloat, rows(H)), onnx_port("k", kOnnxFloat, rows(G)), onnx_port("v", kOnnxFloat, rows(G)),
       onnx_port("past_k", kOnnxFloat, cache), onnx_port("past_v", kOnnxFloat, cache),
       onnx_port("last", kOnnxInt32, {"1"}), onnx_port("total", kOnnxInt32, {"1"})},
      {onnx_port("y", kOnnxFloat, rows(H)), onnx_port("present_k", kOnnxFloat, cache),
       onnx_port("present_v", kOnnxFloat, cache)});
  const auto network = Network::open(path, {.threads = 1, .operators = {}});
  ASSERT_TRUE(network) << network.status().message;
  const std::vector<int64_t> dims = {1, G, room, D};
  std::vector<float> k_room(static_cast<size_t>(G * room * D)), v_room(k_room);
  std::vector<float> k_copy = k_room, v_copy = v_room;  // of the caches that are made anew at every step
  for (int32_t step = 0; step < room; ++step) {
    const auto q = normal_numbers(static_cast<size_t>(H * D), static_cast<unsigned>(3 * step));
    const auto k = normal_numbers(static_cast<size_t>(G * D), static_cast<unsigned>(3 * step + 1));
    const auto v = normal_numbers(static_cast<size_t>(G * D), static_cast<unsigned>(3 * step + 2));
    const std::vector<int32_t> last = {step}, total = {step + 1};
    const auto inputs = [&](const std::vector<float>& past_k, const std::vector<float>& past_v) {
      return NamedArrays{{"q", Array::view<float>(q, {1, 1, H * D})},  {"k", Array::view<float>(k, {1, 1, G * D})},
                         {"v", Array::view<float>(v, {1, 1, G * D})},  {"past_k", Array::view<float>(past_k, dims)},
                         {"past_v", Array::view<float>(past_v, dims)}, {"last", Array::view<int32_t>(last, {1})},
                         {"total", Array::view<int32_t>(total, {1})}};
    };
    const auto apart = network->run(inputs(k_copy, v_copy));
    const auto in_place = network->run(inputs(k_room, v_room), {{"present_k", Array::memory<float>(k_room)},
                                                                {"present_v", Array::memory<float>(v_room)}});
    ASSERT_TRUE(apart) << apart.status().message;
    ASSERT_TRUE(in_place) << in_place.status().message;
    EXPECT_EQ((*in_place)[1].array.data(), k_room.data());
    for (size_t i = 0; i < 3; ++i)
      EXPECT_TRUE(std::ranges::equal((*apart)[i].array.as<float>(), (*in_place)[i].array.as<float>())) << step << i;
    std::ranges::copy((*apart)[1].array.as<float>(), k_copy.begin());
    std::ranges::copy((*apart)[2].array.as<float>(), v_copy.begin());
  }
}

TEST(Array, AskingForAnotherTypeEndsTheProgram) {
  const std::vector<float> values = {1, 2};
  const Array array = Array::view<float>(values, {2});
  EXPECT_EQ(array.as<uint32_t>()[0], 0x3f800000u);  // bits
  EXPECT_DEATH((void)array.as<double>(), "f32 was asked for f64");
  Array copy = array;
  EXPECT_DEATH((void)copy.mutate<float>(), "read only");
}

// Inputs and outputs that stay where the network runs: on a GPU nothing of them is copied to the host between runs, on
// the CPU they are the arrays themselves.
void check_staying(const std::string& path, const NetworkOptions& options, bool on_gpu) {
  const auto network = Network::open(path, options);
  ASSERT_TRUE(network) << network.status().message;
  auto session = network->session(), other = network->session();
  ASSERT_TRUE(session && other);
  std::vector<float> a(6), b(6);
  for (size_t i = 0; i < a.size(); ++i) a[i] = static_cast<float>(i), b[i] = 0.5f * static_cast<float>(i) - 1;
  const auto there = session->to_device(Array::view<float>(b, {2, 3}));
  ASSERT_TRUE(there) << there.status().message;
  EXPECT_EQ(there->on_device(), on_gpu);
  Array sum = Array::view<float>(a, {2, 3});
  for (int run = 1; run <= 5; ++run) {  // from the third on what was captured
    auto& with = run % 2 == 0 ? *other : *session;
    auto outputs = with.run({{"a", sum}, {"b", *there}}, {{"sum", Array::left_on_device()}});
    ASSERT_TRUE(outputs) << outputs.status().message;
    ASSERT_EQ((*outputs)[0].name, "sum");
    sum = (*outputs)[0].array;
    EXPECT_EQ(sum.on_device(), on_gpu);
    EXPECT_EQ(sum.dims(), (std::vector<int64_t>{2, 3}));
    const auto host = session->to_host(sum);
    ASSERT_TRUE(host) << host.status().message;
    for (size_t i = 0; i < a.size(); ++i)
      EXPECT_FLOAT_EQ(host->as<float>()[i], a[i] + static_cast<float>(run) * b[i]) << run;
  }
  if (!on_gpu) return;
  const auto on_cpu = Network::open(path, {.threads = 1, .operators = options.operators});
  ASSERT_TRUE(on_cpu);
  const auto refused = on_cpu->run({{"a", sum}, {"b", sum}});
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.status().message.find("input a"), std::string::npos) << refused.status().message;
}

TEST_F(NetworkTest, ArraysThatStay) {
  options_.operators[0].run = [](OperatorCall& call) {
    const auto from = call.input(0).as<float>();
    auto made = call.output(0, ElementType::kF32, call.input(0).dims());
    if (!made) return made.status();
    std::copy(from.begin(), from.end(), made->mutate<float>().begin());
    return Status{};
  };
  check_staying(path_, options_, false);
  options_.device = "cuda";
  options_.tuning_cache = testing::TempDir() + "network_test_tuning.json";
  if (const auto network = Network::open(path_, options_);
      !network && network.status().code == StatusCode::kUnavailable)
    GTEST_SKIP() << network.status().message;
  check_staying(path_, options_, true);
}

TEST_F(NetworkTest, DeviceAndDtypeAreChecked) {
  options_.device = "tpu";
  EXPECT_EQ(Network::open(path_, options_).status().code, StatusCode::kInvalid);
  options_.device = "cpu";
  for (const char* dtype : {"f16", "tf32", "int8", "f8"}) {
    options_.dtype = dtype;
    EXPECT_EQ(Network::open(path_, options_).status().code, StatusCode::kInvalid) << dtype;
  }
  options_.dtype = "bf16";
  EXPECT_TRUE(Network::open(path_, options_));
}

}  // namespace
}  // namespace bolide
