// Device, Stream, Event: where work runs. Virtual only here: once per copy, mark or capture, never per element.
//
// Work is enqueued on a Stream in order and may run later; the CPU's stream runs everything at once. An error of work
// that runs later is reported by a later call on the stream, synchronize() at the latest. A device that is lost (an
// illegal access in a kernel, a GPU that fell off the bus) answers kUnavailable from then on.
//
// Thread rules: a Stream and an Event belong to one thread at a time; a Device may be used from any thread.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/cpu.h"
#include "base/result.h"
#include "base/workers.h"
#include "tensor/tensor.h"

namespace bolide {

// What the driver says of a GPU.
struct GpuInfo {
  std::string name;            // "NVIDIA H200"
  std::string pci_bus_id;      // "0000:1b:00.0"
  int compute_capability = 0;  // 90 for 9.0
  int multiprocessors = 0;
  int64_t shared_bytes_block = 0;  // shared memory that one block may ask for
  int64_t shared_bytes_multiprocessor = 0;
  // Of one multiprocessor: what its blocks share. reserved: shared memory that every block takes besides its own.
  int threads_multiprocessor = 0, registers_multiprocessor = 0, blocks_multiprocessor = 0;
  int64_t shared_bytes_reserved = 0;
  int64_t l2_bytes = 0;
  int64_t memory_bytes = 0;
  int driver_version = 0;   // newest CUDA that the driver runs: 13000 is 13.0
  int runtime_version = 0;  // CUDA that this binary is linked with
  // 130100 is 13.1.0; 0: cuBLASLt could not be opened, so there are no kernels that use it.
  int64_t cublaslt_version = 0;
};

struct DeviceInfo {
  DeviceId id;
  std::string name;        // "AMD EPYC ..., avx512_vnni, 2 cores"; "NVIDIA H200, 132 SMs, sm_90"
  CpuInfo cpu;             // of the host
  Isa isa = Isa::kScalar;  // level the kernels may use; at most what the processor has
  int threads = 1;         // of the host
  std::optional<GpuInfo> gpu;
};

enum class Memory : uint8_t {
  kDevice,  // where the device's kernels work; contents arbitrary on a GPU, zeroed on the CPU
  kPinned,  // host memory that the device copies from and to without waiting; plain host memory on the CPU
};

// A mark in a stream, made by Device::make_event and set by Stream::record, as often as wanted.
class Event {
 public:
  virtual ~Event() = default;
  // Waits until the work before the last record has run; at once if there was none.
  virtual Result<> synchronize() = 0;
  // Device time between two marks that have both been reached.
  virtual Result<double> seconds_since(const Event& earlier) const = 0;
};

class Stream;

// One launch of a kernel of ours, and how the kernel fits the device.
struct KernelLaunch {
  std::string name;                                           // in full, as C++ writes it
  int64_t blocks = 0;                                         // of the grid
  int threads = 0;                                            // of a block
  int cluster = 1;                                            // blocks that run side by side
  int registers = 0;                                          // of a thread
  int64_t local_bytes = 0;                                    // of a thread: what does not fit in registers
  int64_t static_shared_bytes = 0, dynamic_shared_bytes = 0;  // of a block
  int blocks_multiprocessor = 0;  // that one multiprocessor can hold at a time, however large the grid is
};

// Work that was captured once and is launched again and again: a CUDA graph, or on the CPU the body itself.
class Captured {
 public:
  virtual ~Captured() = default;
  virtual Result<> launch(Stream& stream) = 0;
};

class Stream {
 public:
  virtual ~Stream() = default;
  // Same bytes on both sides, either of which may be on the host; views are contiguous. Copies from and to pinned
  // memory return at once, and the memory must stay as it is until they have run; others wait.
  virtual Result<> copy(TensorView dst, TensorView src) = 0;
  // Every byte of device memory becomes `value`.
  virtual Result<> fill(MutableBytes memory, std::byte value) = 0;
  virtual Result<> record(Event& event) = 0;
  // What is enqueued from here on runs after the event's last record. The host does not wait.
  virtual Result<> wait(const Event& event) = 0;
  // What `body` enqueues on the stream it is given, to be launched later: nothing runs now. A body must enqueue the
  // same work whenever it is called, must not synchronize, and what it refers to must outlive the result.
  virtual Result<std::unique_ptr<Captured>> capture(std::function<Result<>(Stream&)> body) = 0;
  // Waits until everything enqueued has run. The first error of it, if any.
  virtual Result<> synchronize() = 0;
  // From here on what is launched or captured is appended to `launches`, until null is given. Only kernels of ours are
  // seen, not those of libraries, and none on the CPU. For profiling: it takes time.
  virtual void watch(std::vector<KernelLaunch>* launches) { static_cast<void>(launches); }
  // The CPU's threads (on a GPU stream: of the host side).
  virtual Workers& workers() = 0;
};

// `copy` of plain bytes; as many on both sides.
Result<> copy_bytes(Stream& stream, MutableBytes dst, Bytes src);

class Device {
 public:
  virtual ~Device() = default;
  virtual Result<Buffer> allocate(size_t bytes, Memory memory) = 0;
  virtual Result<std::unique_ptr<Stream>> make_stream() = 0;
  virtual Result<std::unique_ptr<Event>> make_event() = 0;
  // Bytes of device memory that nobody uses.
  virtual Result<size_t> free_memory() = 0;
  virtual const DeviceInfo& info() const = 0;
};

// The host's cores. threads 0: what this cgroup may use. isa above what the processor has: kUnsupported.
Result<std::unique_ptr<Device>> make_cpu_device(int threads, std::optional<Isa> isa);

struct CudaOptions {
  int index = 0;                    // of the devices that the driver shows
  int threads = 0;                  // of the host side, as make_cpu_device takes them
  std::filesystem::path libraries;  // where cuBLASLt, cuDNN, NVML and NCCL are looked for first; empty: nowhere special
};
// kUnavailable: this build has no CUDA, or there is no driver, none that is new enough, or no GPU; kNotFound: no device
// of that index. The text says which, and what to do.
Result<std::unique_ptr<Device>> make_cuda_device(const CudaOptions& options);

// What `--device auto` means: the first GPU if it can be used (compute capability 8.0 or newer), else the CPU. A GPU
// that is there and cannot be used is logged as a warning. Asks the driver, which may take some tenths of a second.
DeviceKind auto_device();

}  // namespace bolide
