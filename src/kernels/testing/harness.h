// Checks every kernel of a list against an f64 oracle: fresh random inputs, poisoned outputs and workspaces, guard
// bands, one and two threads, every run twice and bit-compared. Part of the test program only.
//
// In bolide_gpu_tests the same cases run on a GPU, by the GPU's kernels: operands, guard bands and batch are copied
// there, poison too, and everything comes back to be compared. The tests of an op are part of that program once its
// folder has a *_cuda.cc; what of them is for the CPU alone says BOLIDE_CPU_ONLY().
//
// Use: describe a Case, give the oracle and the bound, EXPECT_EQ(check_kernels(...), "").
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "kernels/kernel.h"

namespace bolide::testing {

// What is to be computed: operand types may use the symbols of `sizes`.
struct Case {
  std::string name;
  Op op;
  std::vector<ValueType> in;
  std::vector<int> weights;  // operands that are weights: packed as the kernel asks, one-dimensional ones as f32
  SymbolValues sizes;        // also the bucket
  uint64_t seed = 1;
  int64_t stride_padding = 0;  // NaN columns after each row of the f32 and bf16 matrices that are not weights; outputs
                               // too
  std::vector<ValueType> out;  // empty: what the op's shape function says of f32 activations
};

struct Operand {
  ValueType type;
  Shape shape;
  std::vector<std::byte> natural;  // contiguous rows, as a checkpoint stores them
  std::vector<float> values;       // decoded, for float and block types
  std::vector<int32_t> ints;       // for kI32

  double value(int64_t row, int64_t column) const { return values[static_cast<size_t>(row * shape[-1] + column)]; }
  void set_values(std::vector<float> f32_values);  // only for f32 operands: fills natural too
  void set_ints(std::vector<int32_t> i32_values);
};

// N(0, 1) floats with one column in 61 scaled by 20 (not in weights), block weights of random codes and sane scales,
// i32 zeros.
Operand random_operand(const ValueType& type, const SymbolValues& sizes, bool weight, std::mt19937_64& random);

struct Bound {
  double relative_l2 = 0;    // |out - expected| / |expected| over a whole output
  double largest_error = 0;  // max |out - expected| / root mean square of expected
  // A value far beyond the others is rounded by its own size, not by theirs: so much of itself is not counted in
  // largest_error. Four roundings of f32.
  double own_size = 4 * 0x1p-24;
};

// Rounding to bf16 (8 bits of significand) errs by half of the last bit: up to 2^-8 of a value just above a power of
// two, and of a whole output that is one such value.
inline constexpr double kBF16Rounding = 0x1p-8;

struct Hooks {
  // Expected values of each output, flattened [rows, cols]; integer outputs are compared exactly. Must be set.
  std::function<std::vector<std::vector<double>>(const Case&, std::span<const Operand>)> oracle;
  // Must be set. The reasons for the numbers belong to the caller.
  std::function<Bound(const Case&, const Kernel&)> bound;
  // How large what a kernel rounds on the way to each value is, as `oracle` has the values: a sum that cancels is
  // small, its error is not. Where it is larger than the value, errors are measured by it.
  std::function<std::vector<std::vector<double>>(const Case&, std::span<const Operand>)> rounded;
  std::function<void(std::vector<Operand>&)> fill;  // replaces random operands by what the op needs
  const BatchInputs* batch = nullptr;               // handed to launch
  std::function<void()> reset;                      // before each launch: state behind `batch`, such as KV pools
  std::function<std::vector<float>()> extra;        // after each launch: what was written behind `batch`; compared
                                                    // with the oracle's last vector, by the same bound
  std::function<bool(const Kernel&)> skip;          // with a reason in the caller
};

// Empty, or one line for each failure. Kernels that do not support the problem at any ISA level of this machine are
// passed over; `ran`, if given, receives the names of the others.
std::string check_kernels(std::span<const Kernel> kernels, const Case& test_case, const Hooks& hooks,
                          std::vector<std::string>* ran = nullptr);

// On a device (its kernels instead of the lists that tests name), or back on the CPU with nullptr.
void run_on(Device* device);
bool runs_on_device();
Device* tested_device();  // null: the CPU
// On a device, under tools that make everything a hundred times slower: every `every`-th case, and none once `seconds`
// have passed (0: no end). Those that are left out count as "left out" in `ran`.
struct CaseSample {
  int every = 1;
  double seconds = 0;
};
void run_sample(const CaseSample& sample);
// Skips the rest of a test that is about the CPU's kernels.
#define BOLIDE_CPU_ONLY() \
  if (::bolide::testing::runs_on_device()) GTEST_SKIP() << "about the CPU's kernels"
struct KernelResult {
  int cases = 0, failures = 0;
  Bound worst;  // what was measured, not what was allowed
};
// By kernel: what the device showed so far.
const std::map<std::string_view, KernelResult>& results();
// For tests that check a case themselves: false if the sample leaves it out, else it counts as one of the kernel's.
// `kernel` lives to the end of the program.
bool takes_case(std::string_view kernel);

// Packs, unpacks and compares with the source bit for bit; empty or what went wrong.
std::string check_round_trip(const Packing& packing, const Operand& weight, Workers& workers);

// A CPU stream over a pool, for tests and benches that have no Device.
std::unique_ptr<Stream> stream_over(Workers& workers);
// This machine with its best ISA level, or `isa`.
DeviceInfo this_machine(int threads);
DeviceInfo this_machine(int threads, Isa isa);

// One launch outside check_kernels: packs the weights and returns the outputs as f32. `kernel` must support the
// problem.
std::vector<std::vector<float>> run_once(const Kernel& kernel, const Case& test_case, std::span<const Operand> operands,
                                         int threads);

}  // namespace bolide::testing
