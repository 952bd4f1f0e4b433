// Times every Linear kernel on given shapes beside this machine's roofs, measured in the same run.
//
//   bolide_linear_bench [--threads N] [--rounds N] [--kernel NAME] [--compute int8|bf16|f32] [--type q4_1,...]
//                       [--shape NxK,...] [--tokens 1,512,...]
//
// Inside the timing: the whole launch, activation rounding included. Weights rotate over copies of 96 MB in all, three
// times a 32 MB cache, so that one token reads them from memory; --warm keeps one copy. Median of the rounds; data are
// random.
#include <fmt/format.h>
#include <immintrin.h>
#include <time.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "base/check.h"
#include "kernels/linear/block_fields.h"
#include "kernels/linear/linear.h"
#include "tensor/half.h"

namespace bolide {
namespace {

// With one thread: processor time of this thread, so that neighbours that share the core do not count.
clockid_t g_clock = CLOCK_MONOTONIC;
double now_s() {
  timespec t{};
  clock_gettime(g_clock, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

template <class F>
double median_s(int rounds, F f) {
  std::vector<double> times;
  for (int i = 0; i < rounds; ++i) {
    const double begin = now_s();
    f();
    times.push_back(now_s() - begin);
  }
  std::nth_element(times.begin(), times.begin() + rounds / 2, times.end());
  return times[static_cast<size_t>(rounds) / 2];
}

#define BOLIDE_REPEAT12(op)                                                                                   \
  op " %%zmm0\n" op " %%zmm1\n" op " %%zmm2\n" op " %%zmm3\n" op " %%zmm4\n" op " %%zmm5\n" op " %%zmm6\n" op \
     " %%zmm7\n" op " %%zmm8\n" op " %%zmm9\n" op " %%zmm10\n" op " %%zmm11\n"
#define BOLIDE_CLOBBER12 \
  "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11"

constexpr int64_t kPeakLoops = 2'000'000;
void vnni_loop() {
  for (int64_t i = 0; i < kPeakLoops; ++i)
    asm volatile(BOLIDE_REPEAT12("vpdpbusd %%zmm30, %%zmm31,")::: BOLIDE_CLOBBER12);
}
void fma_loop() {
  for (int64_t i = 0; i < kPeakLoops; ++i)
    asm volatile(BOLIDE_REPEAT12("vfmadd231ps %%zmm30, %%zmm31,")::: BOLIDE_CLOBBER12);
}
void bf16_loop() {
  for (int64_t i = 0; i < kPeakLoops; ++i)
    asm volatile(BOLIDE_REPEAT12("vdpbf16ps %%zmm30, %%zmm31,")::: BOLIDE_CLOBBER12);
}

void read_all(const std::byte* p, size_t bytes) {
  for (size_t i = 0; i + 256 <= bytes; i += 256) {
    __builtin_prefetch(p + i + 4096), __builtin_prefetch(p + i + 4160);
    __builtin_prefetch(p + i + 4224), __builtin_prefetch(p + i + 4288);
    asm volatile(
        "vmovdqu %0, %%ymm0\n vmovdqu %1, %%ymm1\n vmovdqu %2, %%ymm2\n vmovdqu %3, %%ymm3\n"
        "vmovdqu %4, %%ymm4\n vmovdqu %5, %%ymm5\n vmovdqu %6, %%ymm6\n vmovdqu %7, %%ymm7\n" ::"m"(p[i]),
        "m"(p[i + 32]), "m"(p[i + 64]), "m"(p[i + 96]), "m"(p[i + 128]), "m"(p[i + 160]), "m"(p[i + 192]),
        "m"(p[i + 224])
        : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7");
  }
}

struct Roofs {
  double memory = 0, l2 = 0, vnni = 0, fma = 0, bf16 = 0;  // bytes/s of all threads, operations/s of all threads
};

Roofs measure_roofs(Workers& workers, const CpuInfo& cpu) {
  Roofs roofs;
  const int n = workers.threads();
  const size_t bytes = 128u << 20;
  Buffer buffer = *Buffer::host(bytes);
  std::memset(buffer.data(), 1, bytes);
  const auto streamed = median_s(5, [&] {
    workers.run(n * 16, [&](int64_t c, int) {
      const size_t part = bytes / static_cast<size_t>(n * 16);
      read_all(buffer.data() + static_cast<size_t>(c) * part, part);
    });
  });
  roofs.memory = static_cast<double>(bytes) / streamed;
  const double cached = median_s(5, [&] {
    workers.run(n, [&](int64_t c, int) {
      for (int i = 0; i < 200; ++i) read_all(buffer.data() + c * (1 << 20), 512 << 10);
    });
  });
  roofs.l2 = 200. * (512 << 10) * n / cached;
  const auto peak = [&](void (*loop)(), double operations) {
    const double s = median_s(5, [&] { workers.run(n, [&](int64_t, int) { loop(); }); });
    return operations * 12 * kPeakLoops * n / s;
  };
  if (supports(cpu, Isa::kVnni)) roofs.vnni = peak(vnni_loop, 128), roofs.fma = peak(fma_loop, 32);
  if (cpu.features.avx512_bf16) roofs.bf16 = peak(bf16_loop, 64);
  return roofs;
}

Buffer random_weight(const ValueType& type, std::mt19937_64& random) {
  const int64_t n = type.dims[0].factor, k = type.dims[1].factor;
  Buffer buffer = *Buffer::host(row_bytes(type.dtype, type.quant, k) * static_cast<size_t>(n));
  if (type.quant != nullptr) {
    const auto block = static_cast<size_t>(type.quant->block_bytes);
    for (size_t at = 0; at < buffer.size(); at += block) {
      for (size_t i = 0; i < block; ++i) buffer.data()[at + i] = static_cast<std::byte>(random());
      BlockFields fields{};
      read_block(*type.quant, buffer.data() + at, &fields);
      fields.scale = f32_to_f16(0.01f), fields.minimum = f32_to_f16(-0.02f);
      write_block(*type.quant, fields, buffer.data() + at);
    }
    return buffer;
  }
  std::normal_distribution<float> normal;
  for (int64_t i = 0; i < n * k; ++i) {
    const float v = normal(random);
    const uint16_t h = type.dtype == DType::kF16 ? f32_to_f16(v) : f32_to_bf16(v);
    switch (type.dtype) {
      case DType::kF32: std::memcpy(buffer.data() + i * 4, &v, 4); break;
      case DType::kF8E4M3: buffer.data()[i] = static_cast<std::byte>(f32_to_f8e4m3(v)); break;
      case DType::kI8: buffer.data()[i] = static_cast<std::byte>(static_cast<int8_t>(v * 25)); break;
      default: std::memcpy(buffer.data() + i * 2, &h, 2);
    }
  }
  return buffer;
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  for (size_t at = 0; at <= text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    parts.push_back(text.substr(at, comma - at));
    at = comma + 1;
  }
  return parts;
}

struct Options {
  int threads = 1, rounds = 31;
  bool warm = false;
  std::string kernel, compute = "int8";
  std::vector<std::string> types = {"q4_1"}, shapes = {"576x576", "960x576", "3072x576", "576x1536", "49152x576"},
                           tokens = {"1", "16", "512"};
};

void bench(const Options& options, const Kernel& kernel, const ValueType& type, int64_t tokens, Compute compute,
           const Roofs& roofs, Stream& stream) {
  Workers& workers = stream.workers();
  const int64_t n = type.dims[0].factor, k = type.dims[1].factor;
  const Op op = Linear{.compute = compute};
  SymbolValues sizes;
  sizes[Symbol::kTokens] = tokens;
  const std::vector<ValueType> in = {f32({Symbol::kTokens, k}), type}, out = {f32({Symbol::kTokens, n})};
  const CpuInfo cpu = detect_cpu();
  const DeviceInfo device{.cpu = cpu, .isa = best_isa(cpu), .threads = workers.threads()};
  const Problem problem{&op, in, out, sizes, &device};
  if (!kernel.supports(problem)) return;

  std::mt19937_64 random(1);
  const Packing* packing = kernel.packing != nullptr ? kernel.packing(problem, 1) : nullptr;
  const Buffer natural = random_weight(type, random);
  const size_t bytes = packing != nullptr ? packing->bytes(type) : natural.size();
  const size_t copies = options.warm ? 1 : std::clamp<size_t>((96u << 20) / bytes, 1, 64);
  // One allocation, as a plan holds its weights: copies in allocations of their own streamed a third slower.
  const size_t spaced = round_up(bytes, 4096);
  const Buffer arena = *Buffer::host(copies * spaced);
  std::vector<MutableBytes> weights;
  for (size_t i = 0; i < copies; ++i) {
    weights.push_back(arena.bytes().subspan(i * spaced, bytes));
    if (packing == nullptr || i > 0) {
      std::memcpy(weights[i].data(), packing == nullptr ? natural.data() : weights[0].data(), bytes);
      continue;
    }
    WeightRows rows{type.dtype, type.quant, n, k, {}, row_bytes(type.dtype, type.quant, k)};
    const WeightRows::Run runs[] = {{natural.data(), n}};
    rows.runs = runs;
    const double begin = now_s();
    const auto packed = packing->pack(type, rows, weights[0], workers);
    BOLIDE_CHECK(packed.has_value(), "{}", packed.error().text);
    if (tokens == 1) fmt::print("  packed at {:.2f} GB/s\n", static_cast<double>(bytes) / (now_s() - begin) / 1e9);
  }
  std::vector<float> x(static_cast<size_t>(tokens * k)), y(static_cast<size_t>(tokens * n));
  std::normal_distribution<float> normal;
  for (float& v : x) v = normal(random);
  Buffer workspace = *Buffer::host(std::max<size_t>(64, kernel.workspace != nullptr ? kernel.workspace(problem) : 0));
  size_t turn = 0;
  const auto once = [&] {
    const TensorView views[] = {make_view(reinterpret_cast<std::byte*>(x.data()), DType::kF32, {tokens, k}),
                                make_view(weights[turn++ % copies].data(), type.dtype, {n, k}, type.quant)};
    const TensorView outs[] = {make_view(reinterpret_cast<std::byte*>(y.data()), DType::kF32, {tokens, n})};
    const Tactic tactic;
    const Launch launch{&op, views, outs, workspace.bytes(), &tactic, nullptr};
    BOLIDE_CHECK(kernel.launch(launch, stream).has_value(), "launch");
  };
  const double flops = 2. * static_cast<double>(tokens * n * k);
  const int inner = static_cast<int>(std::clamp(3e-3 / (flops / 2e11 + static_cast<double>(bytes) / 3e10), 1., 2000.));
  once();
  const double s = median_s(options.rounds,
                            [&] {
                              for (int i = 0; i < inner; ++i) once();
                            }) /
                   inner;
  const double roof = compute == Compute::kInt8 ? roofs.vnni : compute == Compute::kBF16 ? roofs.bf16 : roofs.fma;
  fmt::print(
      "{:<26} {:<6} N={:<6} K={:<5} T={:<4} {:>10.2f} us {:>8.1f} GB/s ({:>3.0f} % of memory) {:>8.1f} GOP/s ({:>3.0f} "
      "% of peak)\n",
      kernel.name, type.quant != nullptr ? type.quant->name : to_string(type.dtype), n, k, tokens, s * 1e6,
      static_cast<double>(bytes) / s / 1e9, 100 * static_cast<double>(bytes) / s / roofs.memory, flops / s / 1e9,
      roof > 0 ? 100 * flops / s / roof : 0.);
}

int run(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--warm") {
      options.warm = true;
      continue;
    }
    if (i + 1 >= argc) {
      fmt::print(stderr, "{} needs a value; see the head of bench/linear_bench.cc\n", flag);
      return 2;
    }
    const std::string value = argv[++i];
    if (flag == "--threads")
      options.threads = std::max(1, std::atoi(value.c_str()));
    else if (flag == "--rounds")
      options.rounds = std::max(1, std::atoi(value.c_str()));
    else if (flag == "--kernel")
      options.kernel = value;
    else if (flag == "--compute")
      options.compute = value;
    else if (flag == "--type")
      options.types = split(value);
    else if (flag == "--shape")
      options.shapes = split(value);
    else if (flag == "--tokens")
      options.tokens = split(value);
    else
      return fmt::print(stderr, "unknown option {}\n", flag), 2;
  }
  const CpuInfo cpu = detect_cpu();
  const std::unique_ptr<Device> device = std::move(*make_cpu_device(options.threads, std::nullopt));
  const std::unique_ptr<Stream> stream = std::move(*device->make_stream());
  Workers& workers = stream->workers();
  if (options.threads == 1) g_clock = CLOCK_THREAD_CPUTIME_ID;
  const Roofs roofs = measure_roofs(workers, cpu);
  fmt::print(
      "{}, {} threads: memory {:.1f} GB/s, L2 {:.1f} GB/s, VNNI {:.0f} GOP/s, FMA {:.0f} GFLOP/s, bf16 {:.0f} "
      "GFLOP/s\n",
      describe(cpu), workers.threads(), roofs.memory / 1e9, roofs.l2 / 1e9, roofs.vnni / 1e9, roofs.fma / 1e9,
      roofs.bf16 / 1e9);
  const Compute compute = options.compute == "int8"   ? Compute::kInt8
                          : options.compute == "bf16" ? Compute::kBF16
                                                      : Compute::kF32;
  for (const std::string& type_name : options.types) {
    const QuantScheme* quant = quant_from_string(type_name);
    const auto dtype = dtype_from_string(type_name);
    if (quant == nullptr && !dtype) return fmt::print(stderr, "no type {}\n", type_name), 2;
    for (const std::string& shape : options.shapes) {
      long long n = 0, k = 0;
      if (std::sscanf(shape.c_str(), "%lldx%lld", &n, &k) != 2) return fmt::print(stderr, "no shape {}\n", shape), 2;
      const ValueType type{quant != nullptr ? quant->code : *dtype, quant, {int64_t{n}, int64_t{k}}};
      for (const std::string& tokens : options.tokens)
        for (const Kernel& kernel : linear_kernels())
          if (options.kernel.empty() ? kernel.name != "linear_ref" : kernel.name == options.kernel)
            bench(options, kernel, type, std::atoll(tokens.c_str()), compute, roofs, *stream);
    }
  }
  return 0;
}

}  // namespace
}  // namespace bolide

int main(int argc, char** argv) { return bolide::run(argc, argv); }
