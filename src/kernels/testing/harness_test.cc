#include "kernels/testing/harness.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <map>

#include "base/check.h"
#include "ir/graph.h"
#include "kernels/registry.h"
#include "kernels/testing/device_twin.h"
#include "kernels/testing/guarded.h"
#include "tensor/block_codec.h"
#include "tensor/half.h"

namespace bolide::testing {
namespace {

class PoolStream : public Stream {
 public:
  explicit PoolStream(Workers& workers) : workers_(workers) {}
  Result<> copy(TensorView dst, TensorView src) override {
    std::memcpy(dst.data, src.data, row_bytes(src.dtype, src.quant, src.cols()) * static_cast<size_t>(src.rows()));
    return {};
  }
  Result<> fill(MutableBytes memory, std::byte value) override {
    std::fill(memory.begin(), memory.end(), value);
    return {};
  }
  Result<> record(Event&) override { return unsupported(); }
  Result<> wait(const Event&) override { return unsupported(); }
  Result<std::unique_ptr<Captured>> capture(std::function<Result<>(Stream&)>) override { return unsupported(); }
  Result<> synchronize() override { return {}; }
  Workers& workers() override { return workers_; }

 private:
  static Error unsupported() { return error(Code::kUnsupported, "the harness's stream only runs kernels"); }

  Workers& workers_;
};

// Where a scheme keeps its f16 scale and minimum, or its zero point and padding, within a block; -1: none.
struct HalfFields {
  const QuantScheme* scheme;
  int scale, minimum, zero = -1;
};
constexpr HalfFields kHalfFields[] = {
    {&kQ4_0, 0, -1},   {&kQ4_1, 0, 2},    {&kQ5_0, 0, -1},      {&kQ5_1, 0, 2},       {&kQ8_0, 0, -1},
    {&kQ2_K, 80, 82},  {&kQ3_K, 108, -1}, {&kQ4_K, 0, 2},       {&kQ5_K, 0, 2},       {&kQ6_K, 208, -1},
    {&kIQ4_NL, 0, -1}, {&kIQ4_XS, 0, -1}, {&kW4_G32, 0, -1, 2}, {&kW4_G64, 0, -1, 2}, {&kW4_G128, 0, -1, 2}};

void store_half(std::byte* p, float value) {
  const uint16_t h = f32_to_f16(value);
  std::memcpy(p, &h, sizeof h);
}

void decode(Operand& operand) {
  const int64_t k = operand.shape.rank == 0 ? 1 : operand.shape[-1];
  const int64_t rows = operand.shape.elements() / std::max<int64_t>(k, 1);
  const size_t bytes = row_bytes(operand.type.dtype, operand.type.quant, k);
  operand.values.resize(static_cast<size_t>(operand.shape.elements()));
  for (int64_t i = 0; i < rows; ++i)
    decode_row(operand.type.dtype, operand.type.quant, operand.natural.data() + static_cast<size_t>(i) * bytes, k,
               operand.values.data() + i * k);
}

// Everything that one launch needs, ready to be repeated.
struct Arena {
  std::vector<std::unique_ptr<Guarded>> memory;
  std::vector<TensorView> in, out;
  std::vector<int64_t> out_columns;
  std::unique_ptr<Guarded> workspace;
};

Guarded& hold(Arena& arena, size_t bytes) { return *arena.memory.emplace_back(std::make_unique<Guarded>(bytes)); }

bool is_activation(DType dtype) { return dtype == DType::kF32 || dtype == DType::kBF16; }

// A matrix with `padding` NaN columns after each row.
TensorView strided_copy(Arena& arena, const Operand& operand, int64_t padding) {
  const int64_t k = operand.shape[-1], rows = operand.shape.elements() / k;
  const auto size = static_cast<int64_t>(bits_of(operand.type.dtype)) / 8;
  TensorView view = make_view(hold(arena, static_cast<size_t>(rows * (k + padding) * size)).data(), operand.type.dtype,
                              operand.shape);
  view.row_stride = k + padding;
  for (int64_t i = 0; i < rows; ++i)
    std::memcpy(view.data + i * view.row_stride * size, operand.natural.data() + i * k * size,
                static_cast<size_t>(k * size));
  return view;
}

Result<> pack_into(const Packing& packing, const Operand& weight, MutableBytes packed, Workers& workers) {
  WeightRows source{.dtype = weight.type.dtype, .quant = weight.type.quant, .k = weight.shape[-1]};
  source.rows = weight.shape.elements() / source.k;
  source.row_bytes = row_bytes(source.dtype, source.quant, source.k);
  // Two runs, as a concatenated q|k|v weight has.
  const int64_t first = source.rows / 2;
  const WeightRows::Run runs[] = {
      {weight.natural.data(), first},
      {weight.natural.data() + static_cast<size_t>(first) * source.row_bytes, source.rows - first}};
  source.runs = runs;
  std::fill(packed.begin(), packed.end(), std::byte{0});
  return packing.pack(weight.type, source, packed, workers);
}

Result<> prepare(Arena& arena, const Kernel& kernel, const Problem& problem, const Case& test_case,
                 std::span<const Operand> operands, Workers& workers) {
  for (size_t i = 0; i < operands.size(); ++i) {
    const Operand& operand = operands[i];
    const int index = static_cast<int>(i);
    const bool weight = std::find(test_case.weights.begin(), test_case.weights.end(), index) != test_case.weights.end();
    const Packing* packing = weight && kernel.packing != nullptr ? kernel.packing(problem, index) : nullptr;
    if (packing != nullptr) {
      const size_t bytes = packing->bytes(operand.type);
      if (bytes == 0) return error(Code::kInternal, fmt::format("{} cannot hold operand {}", packing->name, i));
      Guarded& packed = hold(arena, bytes);
      BOLIDE_TRY(pack_into(*packing, operand, packed.bytes(), workers));
      arena.in.push_back(make_view(packed.data(), operand.type.dtype, operand.shape, operand.type.quant));
    } else if (!weight && is_activation(operand.type.dtype) && operand.shape.rank == 2) {
      arena.in.push_back(strided_copy(arena, operand, test_case.stride_padding));
    } else {
      Guarded& copy = hold(arena, operand.natural.size());
      std::copy(operand.natural.begin(), operand.natural.end(), copy.data());
      arena.in.push_back(make_view(copy.data(), operand.type.dtype, operand.shape, operand.type.quant));
    }
  }
  for (const ValueType& type : problem.out) {
    const Shape shape = type.at(problem.sizes);
    const int64_t columns = shape.rank == 0 ? 1 : shape[-1];
    const int64_t padding = is_activation(type.dtype) && shape.rank == 2 ? test_case.stride_padding : 0;
    const auto rows = columns == 0 ? 0 : shape.elements() / columns;
    TensorView view = make_view(nullptr, type.dtype, shape);
    if (type.dtype != DType::kNone)
      view.data = hold(arena, static_cast<size_t>(rows * (columns + padding) * bits_of(type.dtype) / 8)).data();
    view.row_stride = columns + padding;
    arena.out.push_back(view);
  }
  arena.workspace = std::make_unique<Guarded>(kernel.workspace != nullptr ? kernel.workspace(problem) : 0);
  return {};
}

double read(const TensorView& view, int64_t row, int64_t column) {
  switch (view.dtype) {
    case DType::kF32: return static_cast<double>(view.row<float>(row)[column]);
    case DType::kBF16: return static_cast<double>(bf16_to_f32(view.row<uint16_t>(row)[column]));
    default: return static_cast<double>(view.row<int32_t>(row)[column]);
  }
}

std::vector<double> read(const TensorView& view) {
  std::vector<double> values;
  if (view.dtype == DType::kNone) return values;
  for (int64_t i = 0; i < view.rows(); ++i)
    for (int64_t j = 0; j < view.cols(); ++j) values.push_back(read(view, i, j));
  return values;
}

void poison(const Arena& arena) {
  for (const TensorView& view : arena.out) {
    if (view.dtype == DType::kNone) continue;
    std::memset(view.data, 0xff, static_cast<size_t>(view.rows() * view.row_stride * bits_of(view.dtype) / 8));
  }
  std::fill(arena.workspace->bytes().begin(), arena.workspace->bytes().end(), kPoison);
}

// The device that kernels run on and what it showed; null: the CPU, kernels of the list at hand.
Device* device_under_test = nullptr;
std::map<std::string_view, KernelResult> results_under_test;
CaseSample sample_under_test;
std::chrono::steady_clock::time_point sample_start;
int64_t cases_under_test = 0;

// The case is not of the sample.
bool is_left_out() {
  if (cases_under_test++ % sample_under_test.every != 0) return true;
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - sample_start;
  return sample_under_test.seconds > 0 && passed.count() > sample_under_test.seconds;
}

// Of one output; `rounded` may be empty.
struct Expected {
  std::span<const double> values, rounded;

  double size(size_t i) const {
    return rounded.empty() ? std::abs(values[i]) : std::max(std::abs(values[i]), rounded[i]);
  }
};

struct Oracle {
  std::vector<std::vector<double>> values, rounded;

  Expected operator[](size_t i) const {
    return {values[i], rounded.empty() ? std::span<const double>() : std::span<const double>(rounded[i])};
  }
};

// Empty, or how `got` misses what is expected; `seen` keeps the largest of what was measured.
std::string compare(std::span<const double> got, const Expected& oracle, bool exact, const Bound& bound, Bound& seen) {
  const std::span<const double> expected = oracle.values;
  if (got.size() != expected.size()) return fmt::format("{} values, oracle has {}", got.size(), expected.size());
  double error2 = 0, expected2 = 0, largest = 0;
  size_t worst = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    if (exact && got[i] != expected[i]) return fmt::format("[{}] is {}, not {}", i, got[i], expected[i]);
    if (std::isnan(got[i]) != std::isnan(expected[i])) return fmt::format("[{}] is {}, not {}", i, got[i], expected[i]);
    if (got[i] == expected[i] || std::isnan(got[i])) {
      if (std::isfinite(expected[i])) expected2 += oracle.size(i) * oracle.size(i);
      continue;
    }
    const double miss = std::abs(got[i] - expected[i]);
    if (!std::isfinite(miss)) return fmt::format("[{}] is {}, not {}", i, got[i], expected[i]);
    error2 += miss * miss;
    expected2 += oracle.size(i) * oracle.size(i);
    const double beyond = miss - oracle.size(i) * bound.own_size;
    if (beyond > largest) largest = beyond, worst = i;
  }
  if (error2 == 0) return "";
  const double rms = std::sqrt(expected2 / static_cast<double>(got.size()));
  const double relative = std::sqrt(error2 / expected2);
  seen.relative_l2 = std::max(seen.relative_l2, relative);
  seen.largest_error = std::max(seen.largest_error, largest / rms);
  if (relative <= bound.relative_l2 && largest <= bound.largest_error * rms) return "";
  return fmt::format("relative L2 {:.3g} (bound {:.3g}), largest error {:.3g} rms at [{}] (bound {:.3g}): {} for {}",
                     relative, bound.relative_l2, largest / rms, worst, bound.largest_error, got[worst],
                     expected[worst]);
}

bool same_bits(const std::vector<std::vector<double>>& a, const std::vector<std::vector<double>>& b) {
  for (size_t i = 0; i < a.size(); ++i)
    if (a[i].size() != b[i].size() ||
        (!a[i].empty() && std::memcmp(a[i].data(), b[i].data(), a[i].size() * sizeof(double)) != 0))
      return false;
  return true;
}

std::vector<Isa> isa_levels() {
  std::vector<Isa> levels;
  const CpuInfo cpu = detect_cpu();
  for (const Isa isa : {Isa::kAmx, Isa::kVnni, Isa::kAvx512, Isa::kAvx2, Isa::kScalar})
    if (supports(cpu, isa)) levels.push_back(isa);
  return levels;
}

// Problem's spans point into this.
struct OwnedProblem {
  std::vector<ValueType> out;
  DeviceInfo device;
  Problem problem;
};

std::string set_problem(OwnedProblem& owned, const Case& test_case, int threads, Isa isa) {
  owned.out = test_case.out;
  if (owned.out.empty()) {
    auto out = infer_types(test_case.op, test_case.in);
    if (!out) return out.error().text;
    owned.out = *std::move(out);
  }
  owned.device = device_under_test != nullptr ? device_under_test->info() : this_machine(threads, isa);
  owned.problem = Problem{&test_case.op, test_case.in, owned.out, test_case.sizes, &owned.device};
  return "";
}

// The launch on the device under test: everything goes there, guard bands and all, and comes back to where it was.
Result<> launch_there(const Kernel& kernel, Launch launch, Arena& arena) {
  BOLIDE_TRY(const std::unique_ptr<Stream> stream, device_under_test->make_stream());
  DeviceTwin twin(*device_under_test, *stream);
  for (const auto& memory : arena.memory) BOLIDE_TRY(twin.add(memory->all()));
  BOLIDE_TRY(twin.add(arena.workspace->all()));
  const std::vector<TensorView> in = twin.there(arena.in), out = twin.there(arena.out);
  launch.in = in;
  launch.out = out;
  launch.workspace = {twin.there(launch.workspace.data()), launch.workspace.size()};
  BatchInputs batch;
  if (launch.batch != nullptr) {
    BOLIDE_TRY(batch, twin.there(*launch.batch));
    launch.batch = &batch;
  }
  BOLIDE_TRY(kernel.launch(launch, *stream));
  BOLIDE_TRY(stream->synchronize());
  return twin.fetch();
}

std::vector<std::vector<double>> launch_once(const Kernel& kernel, const Case& test_case, const Hooks& hooks,
                                             Arena& arena, Stream& stream, std::string* failure) {
  poison(arena);
  if (hooks.reset) hooks.reset();
  const Tactic tactic;
  Launch launch{&test_case.op, arena.in, arena.out, arena.workspace->bytes(), &tactic, hooks.batch};
  auto result = device_under_test == nullptr ? kernel.launch(launch, stream) : launch_there(kernel, launch, arena);
  if (!result) *failure = result.error().text;
  std::vector<std::vector<double>> values;
  for (const TensorView& view : arena.out) values.push_back(read(view));
  if (hooks.extra) {
    const std::vector<float> extra = hooks.extra();
    values.emplace_back(extra.begin(), extra.end());
  }
  const bool intact = arena.workspace->intact() &&
                      std::all_of(arena.memory.begin(), arena.memory.end(), [](const auto& m) { return m->intact(); });
  if (failure->empty() && !intact) *failure = "wrote outside its buffers";
  for (const TensorView& view : arena.out)
    for (int64_t i = 0; is_activation(view.dtype) && i < view.rows(); ++i)
      for (int64_t j = view.cols(); j < view.row_stride; ++j)
        if (failure->empty() && !std::isnan(read(view, i, j))) *failure = "wrote between the rows of its output";
  return values;
}

std::string check_kernel(const Kernel& kernel, const OwnedProblem& owned, const Case& test_case, const Hooks& hooks,
                         std::span<const Operand> operands, const Oracle& oracle, Workers& workers, Bound& seen) {
  Arena arena;
  if (auto result = prepare(arena, kernel, owned.problem, test_case, operands, workers); !result)
    return result.error().text;
  PoolStream stream(workers);
  std::string failure;
  const auto first = launch_once(kernel, test_case, hooks, arena, stream, &failure);
  if (!failure.empty()) return failure;
  if (first.size() != oracle.values.size())
    return fmt::format("{} outputs, oracle has {}", first.size(), oracle.values.size());
  const Bound bound = hooks.bound(test_case, kernel);
  for (size_t i = 0; i < first.size(); ++i) {
    const bool exact = i < arena.out.size() && arena.out[i].dtype == DType::kI32;
    if (i < arena.out.size() && arena.out[i].dtype == DType::kNone) continue;
    if (std::string miss = compare(first[i], oracle[i], exact, bound, seen); !miss.empty())
      return fmt::format("output {}: {}", i, miss);
  }
  const auto second = launch_once(kernel, test_case, hooks, arena, stream, &failure);
  if (!failure.empty()) return "second run: " + failure;
  if (!same_bits(first, second)) return "two runs differ";
  return "";
}

// check_kernels on the device under test: its own kernels for the problem, not those of the list.
std::string check_there(const Case& test_case, const Hooks& hooks, std::span<const Operand> operands,
                        const Oracle& oracle, std::vector<std::string>* ran) {
  static Workers workers(1);
  OwnedProblem owned;
  if (std::string refusal = set_problem(owned, test_case, 1, Isa::kScalar); !refusal.empty())
    return fmt::format("{}: {}\n", test_case.name, refusal);
  std::string failures;
  for (const Kernel* kernel : cuda_kernels().candidates(owned.problem)) {
    if (hooks.skip && hooks.skip(*kernel)) continue;
    KernelResult& result = results_under_test[kernel->name];
    ++result.cases;
    const std::string failure = check_kernel(*kernel, owned, test_case, hooks, operands, oracle, workers, result.worst);
    if (!failure.empty()) {
      ++result.failures;
      failures += fmt::format("{}, {}, seed {}: {}\n", test_case.name, kernel->name, test_case.seed, failure);
    }
    if (ran != nullptr) ran->emplace_back(kernel->name);
  }
  return failures;
}

}  // namespace

void Operand::set_values(std::vector<float> f32_values) {
  BOLIDE_CHECK(type.dtype == DType::kF32 && static_cast<int64_t>(f32_values.size()) == shape.elements(), "not f32");
  values = std::move(f32_values);
  natural.resize(values.size() * 4);
  std::memcpy(natural.data(), values.data(), natural.size());
}

void Operand::set_ints(std::vector<int32_t> i32_values) {
  BOLIDE_CHECK(type.dtype == DType::kI32 && static_cast<int64_t>(i32_values.size()) == shape.elements(), "not i32");
  ints = std::move(i32_values);
  natural.resize(ints.size() * 4);
  std::memcpy(natural.data(), ints.data(), natural.size());
}

Operand random_operand(const ValueType& type, const SymbolValues& sizes, bool weight, std::mt19937_64& random) {
  Operand operand{.type = type, .shape = type.at(sizes)};
  const auto elements = static_cast<size_t>(operand.shape.elements());
  const int64_t k = operand.shape.rank == 0 ? 1 : operand.shape[-1];
  if (type.dtype == DType::kNone) return operand;
  if (type.quant != nullptr) {
    const QuantScheme& scheme = *type.quant;
    const auto* fields = std::find_if(std::begin(kHalfFields), std::end(kHalfFields),
                                      [&](const HalfFields& f) { return f.scheme == &scheme; });
    BOLIDE_CHECK(fields != std::end(kHalfFields), "no random blocks of {}", scheme.name);
    const auto block = static_cast<size_t>(scheme.block_bytes);
    operand.natural.resize(elements / static_cast<size_t>(scheme.block_elements) * block);
    for (std::byte& b : operand.natural) b = static_cast<std::byte>(random());
    std::uniform_real_distribution<float> scale(0.001f, 0.01f);
    for (size_t at = 0; at < operand.natural.size(); at += block) {
      std::byte* p = operand.natural.data() + at;
      store_half(p + fields->scale, scale(random) * (random() % 2 != 0 ? 1.f : -1.f));
      if (fields->zero >= 0) p[fields->zero] &= std::byte{15}, p[fields->zero + 1] = std::byte{0};
      if (fields->minimum >= 0) store_half(p + fields->minimum, scale(random) * (random() % 2 != 0 ? 7.f : -7.f));
    }
    decode(operand);
    return operand;
  }
  if (type.dtype == DType::kI32) {
    operand.set_ints(std::vector<int32_t>(elements));
    return operand;
  }
  std::normal_distribution<float> normal;
  std::vector<float> values(elements);
  for (size_t i = 0; i < elements; ++i)
    values[i] = normal(random) * (!weight && static_cast<int64_t>(i) % k % 61 == 7 ? 20.f : 1.f);
  const auto bytes = static_cast<size_t>(bits_of(type.dtype)) / 8;
  operand.natural.resize(elements * bytes);
  for (size_t i = 0; i < elements; ++i) {
    std::byte* p = operand.natural.data() + i * bytes;
    const auto store = [&](auto value) { std::memcpy(p, &value, sizeof value); };
    switch (type.dtype) {
      case DType::kF64: store(static_cast<double>(values[i])); break;
      case DType::kF32: store(values[i]); break;
      case DType::kF16: store(f32_to_f16(values[i])); break;
      case DType::kBF16: store(f32_to_bf16(values[i])); break;
      case DType::kF8E4M3: store(f32_to_f8e4m3(values[i])); break;
      case DType::kF8E5M2: store(static_cast<uint8_t>(f32_to_f16(values[i]) >> 8)); break;
      case DType::kI8: store(static_cast<int8_t>(std::clamp(std::nearbyint(values[i] * 40), -128.f, 127.f))); break;
      default: BOLIDE_CHECK(false, "no random {}", to_string(type.dtype));
    }
  }
  decode(operand);
  return operand;
}

std::string check_kernels(std::span<const Kernel> kernels, const Case& test_case, const Hooks& hooks,
                          std::vector<std::string>* ran) {
  if (device_under_test != nullptr && is_left_out()) {
    if (ran != nullptr) ran->emplace_back("left out");
    return "";
  }
  std::mt19937_64 random(test_case.seed);
  std::vector<Operand> operands;
  for (size_t i = 0; i < test_case.in.size(); ++i) {
    const bool weight =
        std::find(test_case.weights.begin(), test_case.weights.end(), static_cast<int>(i)) != test_case.weights.end();
    operands.push_back(random_operand(test_case.in[i], test_case.sizes, weight, random));
  }
  if (hooks.fill) hooks.fill(operands);
  Oracle oracle{hooks.oracle(test_case, operands), {}};
  if (hooks.rounded) oracle.rounded = hooks.rounded(test_case, operands);

  if (device_under_test != nullptr) return check_there(test_case, hooks, operands, oracle, ran);
  std::string failures;
  std::vector<const Kernel*> done;
  for (const Isa isa : isa_levels()) {
    for (const int threads : {1, 2}) {
      static Workers one(1), two(2);
      OwnedProblem owned;
      if (std::string refusal = set_problem(owned, test_case, threads, isa); !refusal.empty())
        return fmt::format("{}: {}\n", test_case.name, refusal);
      for (const Kernel& kernel : kernels) {
        if (std::find(done.begin(), done.end(), &kernel) != done.end()) continue;
        if (!kernel.supports(owned.problem) || (hooks.skip && hooks.skip(kernel))) continue;
        Bound seen;
        const std::string failure =
            check_kernel(kernel, owned, test_case, hooks, operands, oracle, threads == 1 ? one : two, seen);
        if (!failure.empty())
          failures += fmt::format("{}, {}, isa {}, {} threads: {}\n", test_case.name, kernel.name, to_string(isa),
                                  threads, failure);
        if (threads == 2) done.push_back(&kernel);
      }
    }
  }
  if (ran != nullptr)
    for (const Kernel* kernel : done) ran->emplace_back(kernel->name);
  return failures;
}

void run_on(Device* device) { device_under_test = device; }
void run_sample(const CaseSample& sample) {
  sample_under_test = sample;
  sample_start = std::chrono::steady_clock::now();
}
bool runs_on_device() { return device_under_test != nullptr; }
Device* tested_device() { return device_under_test; }
const std::map<std::string_view, KernelResult>& results() { return results_under_test; }
bool takes_case(std::string_view kernel) {
  if (is_left_out()) return false;
  ++results_under_test[kernel].cases;
  return true;
}

std::string check_round_trip(const Packing& packing, const Operand& weight, Workers& workers) {
  const size_t bytes = packing.bytes(weight.type);
  if (bytes == 0) return fmt::format("{} cannot hold {}", packing.name, to_string(weight.type));
  Guarded packed(bytes), restored(weight.natural.size());
  if (auto result = pack_into(packing, weight, packed.bytes(), workers); !result) return result.error().text;
  if (auto result = packing.unpack(weight.type, packed.bytes(), restored.bytes(), workers); !result)
    return result.error().text;
  if (!packed.intact() || !restored.intact()) return fmt::format("{} wrote outside its buffers", packing.name);
  for (size_t i = 0; i < weight.natural.size(); ++i)
    if (weight.natural[i] != restored.data()[i])
      return fmt::format("{}: byte {} of {} {} differs", packing.name, i, weight.natural.size(),
                         to_string(weight.type));
  return "";
}

std::unique_ptr<Stream> stream_over(Workers& workers) { return std::make_unique<PoolStream>(workers); }

DeviceInfo this_machine(int threads, Isa isa) {
  static const CpuInfo cpu = detect_cpu();
  return DeviceInfo{.name = describe(cpu), .cpu = cpu, .isa = isa, .threads = threads};
}
DeviceInfo this_machine(int threads) { return this_machine(threads, best_isa(detect_cpu())); }

std::vector<std::vector<float>> run_once(const Kernel& kernel, const Case& test_case, std::span<const Operand> operands,
                                         int threads) {
  OwnedProblem owned;
  const std::string refusal = set_problem(owned, test_case, threads, best_isa(detect_cpu()));
  BOLIDE_CHECK(refusal.empty(), "{}", refusal);
  Workers workers(threads);
  Arena arena;
  const auto prepared = prepare(arena, kernel, owned.problem, test_case, operands, workers);
  BOLIDE_CHECK(prepared.has_value(), "{}", prepared.error().text);
  PoolStream stream(workers);
  std::string failure;
  const auto values = launch_once(kernel, test_case, Hooks{}, arena, stream, &failure);
  BOLIDE_CHECK(failure.empty(), "{}: {}", kernel.name, failure);
  std::vector<std::vector<float>> narrow;
  for (const auto& v : values) narrow.emplace_back(v.begin(), v.end());
  return narrow;
}

namespace {

// The harness itself: a right kernel passes, wrong ones are caught.
bool any(const Problem&) { return true; }
Result<> add(const Launch& launch, Stream&) {
  for (int64_t t = 0; t < launch.out[0].rows(); ++t)
    for (int64_t i = 0; i < launch.out[0].cols(); ++i)
      launch.out[0].row<float>(t)[i] = launch.in[0].row<const float>(t)[i] + launch.in[1].row<const float>(t)[i];
  return {};
}
Result<> add_but_last(const Launch& launch, Stream& stream) {
  BOLIDE_TRY(add(launch, stream));
  launch.out[0].row<float>(launch.out[0].rows() - 1)[launch.out[0].cols() - 1] = NAN;
  return {};
}
Result<> add_beyond(const Launch& launch, Stream& stream) {
  BOLIDE_TRY(add(launch, stream));
  launch.out[0].row<float>(launch.out[0].rows() - 1)[launch.out[0].row_stride] = 0;
  return {};
}
Result<> add_off(const Launch& launch, Stream& stream) {
  BOLIDE_TRY(add(launch, stream));
  launch.out[0].row<float>(0)[0] *= 1.01f;
  return {};
}

TEST(Harness, CatchesWrongKernels) {
  BOLIDE_CPU_ONLY();
  const Case test_case{.name = "add",
                       .op = Add{},
                       .in = {f32({Symbol::kTokens, 5}), f32({Symbol::kTokens, 5})},
                       .sizes = {{3, 1, 1}},
                       .stride_padding = 2};
  Hooks hooks;
  hooks.oracle = [](const Case&, std::span<const Operand> in) {
    std::vector<double> sum;
    for (size_t i = 0; i < in[0].values.size(); ++i)
      sum.push_back(static_cast<double>(in[0].values[i]) + static_cast<double>(in[1].values[i]));
    return std::vector<std::vector<double>>{sum};
  };
  hooks.bound = [](const Case&, const Kernel&) { return Bound{1e-6, 1e-5}; };
  const auto check = [&](Result<> (*launch)(const Launch&, Stream&)) {
    const Kernel kernels[] = {{.name = "k", .supports = any, .launch = launch}};
    return check_kernels(kernels, test_case, hooks);
  };
  EXPECT_EQ(check(add), "");
  EXPECT_NE(check(add_but_last), "");
  EXPECT_NE(check(add_beyond), "");
  EXPECT_NE(check(add_off), "");
  // An error of 0.01 is not seen beside what is a thousand times larger, and one of a whole value is.
  hooks.rounded = [&](const Case& c, std::span<const Operand> in) {
    auto sizes = hooks.oracle(c, in);
    for (double& size : sizes[0]) size = 1e6 * (std::abs(size) + 1);
    return sizes;
  };
  EXPECT_EQ(check(add_off), "");
  EXPECT_NE(check(add_but_last), "");
}

}  // namespace
}  // namespace bolide::testing
