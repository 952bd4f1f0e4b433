// The device itself, in bolide_gpu_tests: memory, events, capture, errors, libraries.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "device/cuda/cublaslt.h"
#include "device/cuda/cuda_stream.h"
#include "device/cuda/nvml.h"
#include "device/device.h"
#include "device/gpu_meter.h"

namespace bolide {
namespace {

struct Gpu {
  std::unique_ptr<Device> device = std::move(*make_cuda_device({}));
  std::unique_ptr<Stream> stream = std::move(*device->make_stream());
};

TEST(CudaDevice, CopiesThereAndBack) {
  Gpu gpu;
  std::mt19937_64 random(std::random_device{}());
  for (const size_t bytes : {size_t{1}, size_t{4097}, size_t{10} << 20}) {
    auto there = gpu.device->allocate(bytes, Memory::kDevice);
    auto pinned = gpu.device->allocate(bytes, Memory::kPinned);
    ASSERT_TRUE(there.has_value() && pinned.has_value());
    std::vector<std::byte> plain(bytes), back(bytes);
    for (std::byte& value : plain) value = static_cast<std::byte>(random());
    ASSERT_TRUE(copy_bytes(*gpu.stream, there->bytes(), plain).has_value());
    ASSERT_TRUE(copy_bytes(*gpu.stream, pinned->bytes(), there->bytes()).has_value());
    ASSERT_TRUE(copy_bytes(*gpu.stream, back, there->bytes()).has_value());
    ASSERT_TRUE(gpu.stream->synchronize().has_value());
    EXPECT_TRUE(std::equal(plain.begin(), plain.end(), back.begin()));
    EXPECT_TRUE(std::equal(plain.begin(), plain.end(), pinned->data()));
  }
}

// Small ones by a kernel, by what their ends are aligned to: all bytes, and none beside them.
TEST(CudaDevice, SmallCopiesAreWhole) {
  Gpu gpu;
  std::mt19937_64 random(std::random_device{}());
  constexpr size_t kRoom = 80 << 10;
  auto there = gpu.device->allocate(kRoom, Memory::kDevice), from = gpu.device->allocate(kRoom, Memory::kPinned);
  auto back = gpu.device->allocate(kRoom, Memory::kPinned);
  ASSERT_TRUE(there.has_value() && from.has_value() && back.has_value());
  for (int i = 0; i < 60; ++i) {
    constexpr size_t kUnits[] = {1, 4, 16};
    const size_t unit = kUnits[i % 3], bytes = random() % ((66 << 10) / unit) * unit;
    const size_t at = random() % 100 * unit, to = random() % 100 * unit;
    for (std::byte& value : from->bytes()) value = static_cast<std::byte>(random());
    std::fill(back->bytes().begin(), back->bytes().end(), std::byte{7});
    ASSERT_TRUE(gpu.stream->fill(there->bytes(), std::byte{9}).has_value());
    ASSERT_TRUE(copy_bytes(*gpu.stream, there->bytes().subspan(to, bytes), from->bytes().subspan(at, bytes)));
    ASSERT_TRUE(copy_bytes(*gpu.stream, back->bytes().subspan(0, kRoom - to), there->bytes().subspan(to)));
    ASSERT_TRUE(gpu.stream->synchronize().has_value());
    EXPECT_TRUE(std::equal(back->data(), back->data() + bytes, from->data() + at))
        << bytes << " at " << at << ", " << to;
    EXPECT_TRUE(
        std::all_of(back->data() + bytes, back->data() + kRoom - to, [](std::byte x) { return x == std::byte{9}; }))
        << bytes << " at " << at << ", " << to;
  }
}

TEST(CudaDevice, OneStreamClaimsWaiting) {
  Gpu gpu;
  auto other = std::move(*gpu.device->make_stream());
  EXPECT_TRUE(as_cuda(*gpu.stream).claim_waiting());
  EXPECT_FALSE(as_cuda(*other).claim_waiting());
  EXPECT_TRUE(as_cuda(*gpu.stream).claim_waiting());
  gpu.stream.reset();
  EXPECT_TRUE(as_cuda(*other).claim_waiting());
}

// A captured copy chain reads its buffers anew at every launch.
TEST(CudaDevice, CapturedReplays) {
  Gpu gpu;
  constexpr size_t kBytes = 1 << 16;
  auto a = gpu.device->allocate(kBytes, Memory::kDevice), b = gpu.device->allocate(kBytes, Memory::kDevice);
  auto host = gpu.device->allocate(kBytes, Memory::kPinned);
  ASSERT_TRUE(a.has_value() && b.has_value() && host.has_value());
  ASSERT_TRUE(gpu.stream->fill(b->bytes(), std::byte{1}).has_value());
  auto captured = gpu.stream->capture([&](Stream& stream) -> Result<> {
    BOLIDE_TRY(copy_bytes(stream, b->bytes(), a->bytes()));
    return copy_bytes(stream, host->bytes(), b->bytes());
  });
  ASSERT_TRUE(captured.has_value()) << captured.error().text;
  for (const std::byte value : {std::byte{5}, std::byte{9}}) {
    ASSERT_TRUE(gpu.stream->fill(a->bytes(), value).has_value());
    ASSERT_TRUE((*captured)->launch(*gpu.stream).has_value());
    ASSERT_TRUE(gpu.stream->synchronize().has_value());
    EXPECT_EQ(host->data()[kBytes - 1], value);
  }
  const auto refused = gpu.stream->capture([](Stream&) -> Result<> { return error(Code::kInvalid, "no"); });
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().text, "no");
  EXPECT_TRUE(gpu.stream->synchronize().has_value());  // the stream is usable again
}

TEST(CudaDevice, EventsOrderStreamsAndMeasure) {
  Gpu gpu;
  auto other = gpu.device->make_stream();
  auto first = gpu.device->make_event(), second = gpu.device->make_event();
  auto memory = gpu.device->allocate(size_t{256} << 20, Memory::kDevice);
  ASSERT_TRUE(other.has_value() && first.has_value() && second.has_value() && memory.has_value());
  ASSERT_TRUE(gpu.stream->record(**first).has_value());
  ASSERT_TRUE(gpu.stream->fill(memory->bytes(), std::byte{3}).has_value());
  ASSERT_TRUE(gpu.stream->record(**second).has_value());
  std::byte last{0};
  ASSERT_TRUE((*other)->wait(**second).has_value());
  ASSERT_TRUE(copy_bytes(**other, {&last, 1}, memory->bytes().last(1)).has_value());
  ASSERT_TRUE((*other)->synchronize().has_value());
  EXPECT_EQ(last, std::byte{3});
  const double seconds = *(*second)->seconds_since(**first);
  EXPECT_GT(seconds, 1e-6);
  EXPECT_LT(seconds, 1);
}

TEST(CudaDevice, ErrorsSayWhat) {
  Gpu gpu;
  const auto free = gpu.device->free_memory();
  ASSERT_TRUE(free.has_value());
  EXPECT_GT(*free, size_t{1} << 20);
  EXPECT_LE(static_cast<int64_t>(*free), gpu.device->info().gpu->memory_bytes);
  const auto huge = gpu.device->allocate(size_t{1} << 50, Memory::kDevice);
  ASSERT_FALSE(huge.has_value());
  EXPECT_EQ(huge.error().code, Code::kOutOfMemory);
  EXPECT_NE(huge.error().text.find("cudaMalloc of 1125899906842624 bytes: cudaErrorMemoryAllocation"),
            std::string::npos)
      << huge.error().text;
  EXPECT_TRUE(gpu.device->allocate(1024, Memory::kDevice).has_value());  // not a lost device
  const auto none = make_cuda_device({.index = 1000});
  ASSERT_FALSE(none.has_value());
  EXPECT_EQ(none.error().code, Code::kNotFound);
}

TEST(CudaDevice, LibrariesOpen) {
  Gpu gpu;
  const auto lt = as_cuda(*gpu.stream).state().cublaslt();
  ASSERT_TRUE(lt.has_value()) << lt.error().text;
  EXPECT_GE((*lt)->GetVersion(), size_t{130000});
  std::printf("cuBLASLt %zu at %s\n", (*lt)->GetVersion(), (*lt)->path.c_str());
  const auto nvml = Nvml::open(as_cuda(*gpu.stream).state().libraries(), *gpu.device->info().gpu);
  ASSERT_TRUE(nvml.has_value()) << nvml.error().text;
  const GpuReading reading = nvml->read();
  EXPECT_GT(reading.power_watts, 0);
  std::printf("driver %s, %.0f W of %.0f, %d MHz, memory %d MHz, %d C\n", nvml->driver().c_str(), reading.power_watts,
              reading.power_limit_watts, reading.sm_mhz, reading.memory_mhz, reading.temperature_celsius);
  for (const auto& library :
       {open_cudnn(as_cuda(*gpu.stream).state().libraries()), open_nccl(as_cuda(*gpu.stream).state().libraries())})
    std::printf("%s\n", library.has_value() ? library->path().c_str() : library.error().text.c_str());
}

// Rates are those of memory and of multipliers, not of launches: a copy moves no more than reads can, fp8 is no slower
// than bf16.
TEST(CudaDevice, RatesAreMeasured) {
  Gpu gpu;
  const auto rates = measure_gpu_rates(*gpu.device, 1);
  ASSERT_TRUE(rates.has_value()) << rates.error().text;
  std::map<std::string, double> best;
  for (const GpuRate& rate : *rates) {
    ASSERT_FALSE(rate.samples.empty()) << rate.name;
    best[rate.name] = *std::max_element(rate.samples.begin(), rate.samples.end());
  }
  EXPECT_GT(best["memory_read"], 100);
  EXPECT_LT(best["memory_copy"], 1.5 * best["memory_read"]);
  if (best.contains("bf16") && best.contains("fp8")) {
    EXPECT_GT(best["fp8"], best["bf16"]);
  }
  const auto meter = make_gpu_meter(*gpu.device);
  if (!meter) GTEST_SKIP() << meter.error().text;
  EXPECT_GT((*meter)->read().power_watts, 0);
  EXPECT_FALSE((*meter)->driver().empty());
}

}  // namespace
}  // namespace bolide
