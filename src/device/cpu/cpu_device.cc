// The host as a Device: memory from the operating system, a stream that runs each kernel at once on its Workers.
#include <fmt/format.h>

#include <chrono>
#include <cstring>
#include <optional>

#include <unistd.h>

#include "device/device.h"

namespace bolide {
namespace {

using Clock = std::chrono::steady_clock;

// Everything before a mark has run when it is set.
class CpuEvent final : public Event {
 public:
  Result<> synchronize() override { return {}; }
  Result<double> seconds_since(const Event& earlier) const override {
    return std::chrono::duration<double>(at - static_cast<const CpuEvent&>(earlier).at).count();
  }
  Clock::time_point at;
};

class CpuCaptured final : public Captured {
 public:
  explicit CpuCaptured(std::function<Result<>(Stream&)> body) : body_(std::move(body)) {}
  Result<> launch(Stream& stream) override { return body_(stream); }

 private:
  std::function<Result<>(Stream&)> body_;
};

class CpuStream final : public Stream {
 public:
  explicit CpuStream(int threads) : workers_(threads) {}

  Result<> copy(TensorView dst, TensorView src) override {
    BOLIDE_CHECK(dst.dtype == src.dtype && dst.shape == src.shape, "copy between {} and {}", to_string(dst.shape),
                 to_string(src.shape));
    std::memcpy(dst.data, src.data, static_cast<size_t>(src.rows()) * row_bytes(src.dtype, src.quant, src.cols()));
    return {};
  }
  Result<> fill(MutableBytes memory, std::byte value) override {
    std::memset(memory.data(), static_cast<int>(value), memory.size());
    return {};
  }
  Result<> record(Event& event) override {
    static_cast<CpuEvent&>(event).at = Clock::now();
    return {};
  }
  Result<> wait(const Event&) override { return {}; }
  Result<std::unique_ptr<Captured>> capture(std::function<Result<>(Stream&)> body) override {
    return std::unique_ptr<Captured>(std::make_unique<CpuCaptured>(std::move(body)));
  }
  Result<> synchronize() override { return {}; }
  Workers& workers() override { return workers_; }

 private:
  Workers workers_;
};

class CpuDevice final : public Device {
 public:
  explicit CpuDevice(DeviceInfo info) : info_(std::move(info)) {}

  // What engines ask a device for is the KV cache, whose blocks are touched as they are used.
  Result<Buffer> allocate(size_t bytes, Memory) override { return Buffer::host(bytes, Buffer::Pages::kSmall); }
  Result<std::unique_ptr<Stream>> make_stream() override { return std::make_unique<CpuStream>(info_.threads); }
  Result<std::unique_ptr<Event>> make_event() override { return std::unique_ptr<Event>(std::make_unique<CpuEvent>()); }
  Result<size_t> free_memory() override {
    return static_cast<size_t>(sysconf(_SC_AVPHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGESIZE));
  }
  const DeviceInfo& info() const override { return info_; }

 private:
  DeviceInfo info_;
};

}  // namespace

Result<std::unique_ptr<Device>> make_cpu_device(int threads, std::optional<Isa> isa) {
  DeviceInfo info;
  info.cpu = detect_cpu();
  info.name = describe(info.cpu);
  info.isa = isa.value_or(best_isa(info.cpu));
  if (!supports(info.cpu, info.isa))
    return error(Code::kUnsupported, fmt::format("--isa {}: this processor has at most {} ({})", to_string(info.isa),
                                                 to_string(best_isa(info.cpu)), info.name));
  if (threads < 0 || threads > 1024)
    return error(Code::kInvalid, fmt::format("--threads {}: expected 1 to 1024", threads));
  info.threads = threads == 0 ? info.cpu.cores() : threads;
  return std::make_unique<CpuDevice>(std::move(info));
}

}  // namespace bolide
