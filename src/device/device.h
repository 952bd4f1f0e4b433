// Device, Stream: where work runs. Virtual only here: once per copy or capture, never per element.
//
// Thread rules: a Stream belongs to one thread at a time; a Device may be used from any thread.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/cpu.h"
#include "base/result.h"
#include "base/workers.h"
#include "tensor/tensor.h"

namespace bolide {

struct DeviceInfo {
  DeviceId id;
  std::string name;        // "AMD EPYC ..., avx512_vnni, 2 cores"
  CpuInfo cpu;             // of the host
  Isa isa = Isa::kScalar;  // level the kernels may use; at most what the processor has
  int threads = 1;
};

class Stream {
 public:
  virtual ~Stream() = default;
  // Same bytes on both sides; views are contiguous.
  virtual Result<> copy(TensorView dst, TensorView src) = 0;
  // Waits until everything enqueued has run. The first error of it, if any.
  virtual Result<> synchronize() = 0;
  // The CPU's threads (on a GPU stream: of the host side).
  virtual Workers& workers() = 0;
};

class Device {
 public:
  virtual ~Device() = default;
  virtual Result<Buffer> allocate(size_t bytes) = 0;
  virtual Result<std::unique_ptr<Stream>> make_stream() = 0;
  virtual const DeviceInfo& info() const = 0;
};

// The host's cores. threads 0: what this cgroup may use. isa above what the processor has: kUnsupported.
Result<std::unique_ptr<Device>> make_cpu_device(int threads, std::optional<Isa> isa);
// kUnavailable "built without CUDA" in builds without it.
Result<std::unique_ptr<Device>> make_cuda_device(int index);

}  // namespace bolide
