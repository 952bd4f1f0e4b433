#include "measure/machine.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <iterator>
#include <memory>
#include <optional>
#include <string>

#include "base/bytes.h"
#include "base/json_string.h"
#include "base/memory.h"
#include "measure/machine_kernels.h"
#include "measure/report.h"

namespace bolide {
namespace {

using Clock = std::chrono::steady_clock;
constexpr double kSampleSeconds = 2e-3;  // long against starting a run, short against a slice of the scheduler
constexpr int kSamplesMax = 41;
constexpr int kSamplesMin = 5;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

std::atomic<uint64_t> g_sink;  // keeps results alive
void keep(uint64_t value) { g_sink.fetch_xor(value, std::memory_order_relaxed); }
void keep(float value) {
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  keep(uint64_t{bits});
}

// Memory of its own, page-aligned, in large pages where the system gives them.
class Mapping {
 public:
  static std::optional<Mapping> make(int64_t bytes) {
    void* data =
        ::mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) return std::nullopt;
    ::madvise(data, static_cast<size_t>(bytes), MADV_HUGEPAGE);
    return Mapping(static_cast<std::byte*>(data), bytes);
  }
  Mapping(Mapping&& other) noexcept : data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_) {}
  Mapping& operator=(Mapping&&) = delete;
  ~Mapping() {
    if (data_ != nullptr) ::munmap(data_, static_cast<size_t>(bytes_));
  }
  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  Mapping(std::byte* data, int64_t bytes) : data_(data), bytes_(bytes) {}
  std::byte* data_;
  int64_t bytes_;
};

// Random bits: equal pages could be merged, and zeros are cheaper to move on some machines.
void fill(std::byte* data, int64_t bytes, uint64_t seed) {
  uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
  for (int64_t at = 0; at + 8 <= bytes; at += 8) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    std::memcpy(data + at, &state, 8);
  }
}

// One share of the work for each of `threads` threads; the seconds that took, and whether each share had its own
// thread.
struct Timed {
  double seconds = 0;
  bool full = false;
};

Timed timed(Workers& workers, int threads, FunctionRef<void(int share)> body) {
  std::vector<char> used(workers.threads(), 0);  // a thread writes only its own
  const auto start = Clock::now();
  workers.run(threads, [&](int64_t share, int thread) {
    used[thread] = 1;
    body(static_cast<int>(share));
  });
  const double seconds = seconds_since(start);
  return {seconds, std::count(used.begin(), used.end(), 1) == threads};
}

// Samples rates until the time is up; rates with all threads are preferred.
void sample(Roof& roof, double slice_s, FunctionRef<Timed()> run, double work) {
  std::vector<double> full, partial;
  const auto start = Clock::now();
  while (static_cast<int>(full.size()) < kSamplesMax) {
    const double passed_s = seconds_since(start);
    if (passed_s > slice_s && static_cast<int>(full.size()) >= kSamplesMin) break;
    if (passed_s > 2 * slice_s && static_cast<int>(full.size() + partial.size()) >= kSamplesMin) break;
    const Timed time = run();
    (time.full ? full : partial).push_back(work / time.seconds * 1e-9);
  }
  roof.full_samples = static_cast<int64_t>(full.size());
  roof.rate = summarise(full.empty() ? partial : full);
}

class Session {
 public:
  Session(Workers& workers, const CpuInfo& cpu) : workers_(workers), cpu_(cpu) {
    for (int threads = 1; threads < workers.threads(); threads *= 2) counts_.push_back(threads);
    counts_.push_back(workers.threads());
  }

  void run(double budget_s, MachineRoofs& result) {
    const std::vector<std::pair<std::string_view, roofs::Arithmetic>> arithmetic = pick_arithmetic();
    const double slice_s = budget_s / static_cast<double>((arithmetic.size() + 2) * counts_.size());
    memory(slice_s, result);
    level_2(slice_s, result);
    for (const auto& [name, loop] : arithmetic)
      for (const int threads : counts_) result.roofs.push_back(measure(name, loop, threads, slice_s));
  }

 private:
  roofs::List<roofs::ReadVariant> pick_reads() const {
#if defined(__x86_64__)
    if (supports(cpu_, Isa::kAvx512)) return roofs::read_avx512();
    if (supports(cpu_, Isa::kAvx2)) return roofs::read_avx2();
#endif
    return roofs::read_scalar();
  }

  std::vector<std::pair<std::string_view, roofs::Arithmetic>> pick_arithmetic() const {
    std::vector<std::pair<std::string_view, roofs::Arithmetic>> picked;
#if defined(__x86_64__)
    picked.emplace_back("fp32", supports(cpu_, Isa::kAvx512) ? roofs::fp32_avx512()
                                : supports(cpu_, Isa::kAvx2) ? roofs::fp32_avx2()
                                                             : roofs::fp32_scalar());
    if (supports(cpu_, Isa::kVnni)) {
      if (cpu_.features.avx512_bf16) picked.emplace_back("bf16", roofs::bf16_avx512());
      picked.emplace_back("int8", roofs::int8_vnni());
    }
    if (supports(cpu_, Isa::kAmx)) {
      picked.emplace_back("amx_bf16", roofs::bf16_amx());
      picked.emplace_back("amx_int8", roofs::int8_amx());
    }
#else
    picked.emplace_back("fp32", roofs::fp32_scalar());
#endif
    return picked;
  }

  // The variant that reads fastest here and now: the best of three tries of each.
  roofs::ReadVariant fastest(FunctionRef<Timed(roofs::ReadLoop)> run) const {
    const auto variants = pick_reads();
    roofs::ReadVariant best = variants.items[0];
    double best_s = 1e30;
    for (int repeat = 0; repeat < 3; ++repeat)
      for (int i = 0; i < variants.count; ++i) {
        const double seconds = run(variants.items[i].loop).seconds;
        if (seconds < best_s) {
          best_s = seconds;
          best = variants.items[i];
        }
      }
    return best;
  }

  void memory(double slice_s, MachineRoofs& result) {
    // A sample reads one of four parts in turn: between two reads of a part three times the level-3 cache went by.
    constexpr int kParts = 4;
    const int threads_max = workers_.threads();
    const int64_t unit = roofs::kReadUnit * 8 * threads_max * kParts;  // 8: the most streams
    const int64_t wanted = std::max<int64_t>(4 * cpu_.l3_bytes, int64_t{128} << 20);
    const auto allowed = static_cast<int64_t>(std::min(size_t{4} << 30, available_memory_bytes() / 4));
    const int64_t bytes = std::max<int64_t>(std::min(wanted, allowed) / unit, 1) * unit;
    std::optional<Mapping> buffer = Mapping::make(bytes);
    if (!buffer) return;
    // Written by the threads that will read it, so that each part lies in memory near them.
    const int64_t pieces = bytes / (roofs::kReadUnit * 8);
    const int64_t piece_bytes = bytes / pieces;
    workers_.run(pieces, [&](int64_t piece, int) {
      fill(buffer->data() + piece * piece_bytes, piece_bytes, static_cast<uint64_t>(piece));
    });
    result.memory_bytes = bytes;

    const int64_t part_bytes = bytes / kParts;
    int part = 0;
    for (const int threads : counts_) {
      const int64_t share_bytes = part_bytes / threads / (roofs::kReadUnit * 8) * (roofs::kReadUnit * 8);
      const auto read = [&](roofs::ReadLoop loop) {
        const std::byte* base = buffer->data() + part * part_bytes;
        part = (part + 1) % kParts;
        return timed(workers_, threads, [&](int share) { keep(loop(base + share * share_bytes, share_bytes)); });
      };
      const roofs::ReadVariant best = fastest(read);
      Roof roof{.name = "memory_read", .unit = "GB/s", .method = best.name, .threads = threads};
      sample(roof, slice_s, [&] { return read(best.loop); }, static_cast<double>(share_bytes * threads));
      result.roofs.push_back(std::move(roof));
    }
  }

  void level_2(double slice_s, MachineRoofs& result) {
    const int64_t l2_bytes = cpu_.l2_bytes > 0 ? cpu_.l2_bytes : 256 << 10;
    const int64_t share_bytes =
        std::max<int64_t>(static_cast<int64_t>(round_up(l2_bytes / 2, roofs::kReadUnit * 8)), roofs::kReadUnit * 8);
    std::optional<Mapping> buffer = Mapping::make(share_bytes * workers_.threads());
    if (!buffer) return;
    fill(buffer->data(), buffer->bytes(), 1);
    for (const int threads : counts_) {
      int64_t repeats = 8;
      const auto read = [&](roofs::ReadLoop loop) {
        return timed(workers_, threads, [&](int share) {
          for (int64_t i = 0; i < repeats; ++i) keep(loop(buffer->data() + share * share_bytes, share_bytes));
        });
      };
      const roofs::ReadVariant best = fastest(read);
      repeats = std::clamp<int64_t>(static_cast<int64_t>(8 * kSampleSeconds / read(best.loop).seconds), 1, 4096);
      Roof roof{.name = "l2_read", .unit = "GB/s", .method = best.name, .threads = threads};
      sample(roof, slice_s, [&] { return read(best.loop); }, static_cast<double>(share_bytes * repeats * threads));
      result.roofs.push_back(std::move(roof));
    }
  }

  Roof measure(std::string_view name, const roofs::Arithmetic& arithmetic, int threads, double slice_s) {
    int64_t rounds = 2000;
    const auto compute = [&] { return timed(workers_, threads, [&](int) { keep(arithmetic.loop(rounds)); }); };
    double seconds = 1e30;
    for (int i = 0; i < 3; ++i) seconds = std::min(seconds, compute().seconds);
    rounds = std::clamp<int64_t>(static_cast<int64_t>(static_cast<double>(rounds) * kSampleSeconds / seconds), 100,
                                 int64_t{1} << 32);
    Roof roof{.name = std::string(name), .unit = "Gop/s", .method = arithmetic.method, .threads = threads};
    sample(roof, slice_s, compute, static_cast<double>(rounds) * arithmetic.operations_per_round * threads);
    return roof;
  }

  Workers& workers_;
  const CpuInfo& cpu_;
  std::vector<int> counts_;
};

}  // namespace

const Roof* MachineRoofs::find(std::string_view name, int threads) const {
  for (const Roof& roof : roofs)
    if (roof.name == name && roof.threads == threads) return &roof;
  return nullptr;
}

std::string MachineRoofs::to_json() const {
  std::string json = "{\"cpu\":";
  append_json_string(json, cpu);
  json += ",\"fingerprint\":";
  append_json_string(json, fingerprint);
  fmt::format_to(std::back_inserter(json), ",\"memory_bytes\":{},\"roofs\":[", memory_bytes);
  for (const Roof& roof : roofs) {
    if (&roof != roofs.data()) json += ',';
    json += "{\"name\":";
    append_json_string(json, roof.name);
    json += ",\"unit\":";
    append_json_string(json, roof.unit);
    json += ",\"method\":";
    append_json_string(json, roof.method);
    fmt::format_to(std::back_inserter(json),
                   ",\"threads\":{},\"median\":{},\"min\":{},\"max\":{},\"samples\":{},\"full_samples\":{}}}",
                   roof.threads, roof.rate.median, roof.rate.min, roof.rate.max, roof.rate.samples, roof.full_samples);
  }
  return json + "]}";
}

std::string MachineRoofs::to_text() const {
  Table table({{"roof"}, {"threads", 0}, {"median", 1}, {"min", 1}, {"max", 1}, {"unit"}, {"samples", 0}, {"method"}});
  for (const Roof& roof : roofs)
    table.add({roof.name, static_cast<double>(roof.threads), roof.rate.median, roof.rate.min, roof.rate.max, roof.unit,
               static_cast<double>(roof.rate.samples),
               roof.full_samples > 0 ? roof.method : roof.method + " (some threads were kept from running)"});
  return cpu + "\n" + table.to_text();
}

MachineRoofs measure_machine(Workers& workers, const CpuInfo& cpu, double budget_s) {
  MachineRoofs result{.cpu = describe(cpu), .fingerprint = fingerprint(cpu)};
  Session(workers, cpu).run(budget_s, result);
  return result;
}

}  // namespace bolide
