// The host as a Device: memory from the operating system, a stream that runs each kernel at once on its Workers.
#include <fmt/format.h>

#include <cstring>
#include <optional>

#include "device/device.h"

namespace bolide {
namespace {

class CpuStream final : public Stream {
 public:
  explicit CpuStream(int threads) : workers_(threads) {}

  Result<> copy(TensorView dst, TensorView src) override {
    BOLIDE_CHECK(dst.dtype == src.dtype && dst.shape == src.shape, "copy between {} and {}", to_string(dst.shape),
                 to_string(src.shape));
    std::memcpy(dst.data, src.data, static_cast<size_t>(src.rows()) * row_bytes(src.dtype, src.quant, src.cols()));
    return {};
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
  Result<Buffer> allocate(size_t bytes) override { return Buffer::host(bytes, Buffer::Pages::kSmall); }
  Result<std::unique_ptr<Stream>> make_stream() override { return std::make_unique<CpuStream>(info_.threads); }
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
