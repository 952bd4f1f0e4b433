// NVIDIA GPUs as Devices: memory from cudaMalloc (never managed memory, which can hang a GPU that others share).
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <filesystem>

#include "base/log.h"
#include "device/cuda/cublaslt.h"
#include "device/cuda/cuda_event.h"
#include "device/cuda/cuda_stream.h"
#include "device/cuda/matmul.h"

namespace bolide {
namespace {

// The driver must run the CUDA version whose runtime is linked in, down to its minor version 0.
constexpr int kOldestDriver = CUDART_VERSION / 1000 * 1000;

std::string version_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

// Errors after which every call on the device fails.
bool is_sticky(cudaError_t status) {
  switch (status) {
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorHardwareStackError:
    case cudaErrorAssert:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContextIsDestroyed:
    case cudaErrorDevicesUnavailable:
    case cudaErrorUnknown: return true;
    default: return false;
  }
}

// How many GPUs there are, or why none can be used.
Result<int> count_devices() {
  int driver = 0, count = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess) driver = 0;
  if (driver == 0)
    return error(
        Code::kUnavailable,
        "--device cuda: there is no NVIDIA driver (libcuda.so.1) on this machine that can be used; use --device "
        "cpu");
  if (driver < kOldestDriver)
    return error(
        Code::kUnavailable,
        fmt::format("--device cuda: the NVIDIA driver is for CUDA {}, this bolide needs one for CUDA {} or newer; "
                    "update the driver or use --device cpu",
                    version_text(driver), version_text(kOldestDriver)));
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaErrorNoDevice || (status == cudaSuccess && count == 0))
    return error(Code::kUnavailable,
                 "--device cuda: the driver shows no GPU (does CUDA_VISIBLE_DEVICES name one?); use --device cpu");
  if (status != cudaSuccess)
    return error(Code::kUnavailable, fmt::format("--device cuda: cudaGetDeviceCount: {}: {}", cudaGetErrorName(status),
                                                 cudaGetErrorString(status)));
  return count;
}

Result<GpuInfo> read_gpu(CudaState& state) {
  cudaDeviceProp properties;
  BOLIDE_TRY(state.check(cudaGetDeviceProperties(&properties, state.index()), "cudaGetDeviceProperties"));
  GpuInfo gpu;
  gpu.name = properties.name;
  char bus[32] = {};
  BOLIDE_TRY(state.check(cudaDeviceGetPCIBusId(bus, sizeof bus, state.index()), "cudaDeviceGetPCIBusId"));
  gpu.pci_bus_id = bus;
  gpu.compute_capability = properties.major * 10 + properties.minor;
  gpu.multiprocessors = properties.multiProcessorCount;
  gpu.shared_bytes_block = static_cast<int64_t>(properties.sharedMemPerBlockOptin);
  gpu.shared_bytes_multiprocessor = static_cast<int64_t>(properties.sharedMemPerMultiprocessor);
  gpu.threads_multiprocessor = properties.maxThreadsPerMultiProcessor;
  gpu.registers_multiprocessor = properties.regsPerMultiprocessor;
  gpu.blocks_multiprocessor = properties.maxBlocksPerMultiProcessor;
  gpu.shared_bytes_reserved = static_cast<int64_t>(properties.reservedSharedMemPerBlock);
  gpu.l2_bytes = properties.l2CacheSize;
  gpu.memory_bytes = static_cast<int64_t>(properties.totalGlobalMem);
  BOLIDE_TRY(state.check(cudaDriverGetVersion(&gpu.driver_version), "cudaDriverGetVersion"));
  BOLIDE_TRY(state.check(cudaRuntimeGetVersion(&gpu.runtime_version), "cudaRuntimeGetVersion"));
  return gpu;
}

class CudaDevice final : public Device {
 public:
  CudaDevice(std::shared_ptr<CudaState> state, DeviceInfo info) : state_(std::move(state)), info_(std::move(info)) {}

  Result<Buffer> allocate(size_t bytes, Memory memory) override {
    BOLIDE_TRY(state_->enter());
    if (bytes == 0) return Buffer();
    void* data = nullptr;
    if (memory == Memory::kPinned) {
      BOLIDE_TRY(state_->check(cudaMallocHost(&data, bytes), fmt::format("cudaMallocHost of {} bytes", bytes)));
      return Buffer(static_cast<std::byte*>(data), bytes, DeviceId{}, [](std::byte* p, size_t) { cudaFreeHost(p); });
    }
    if (auto done = state_->check(cudaMalloc(&data, bytes), fmt::format("cudaMalloc of {} bytes", bytes)); !done) {
      if (done.error().code != Code::kOutOfMemory) return std::move(done).error();
      const auto free = free_memory();
      return std::move(done).error().context(fmt::format("{} has {:.1f} of {:.1f} MB free", info_.name,
                                                         static_cast<double>(free ? *free : 0) / 1e6,
                                                         static_cast<double>(info_.gpu->memory_bytes) / 1e6));
    }
    return Buffer(static_cast<std::byte*>(data), bytes, info_.id, [](std::byte* p, size_t) { cudaFree(p); });
  }

  Result<std::unique_ptr<Stream>> make_stream() override {
    BOLIDE_TRY(state_->enter());
    cudaStream_t stream = nullptr;
    BOLIDE_TRY(state_->check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags"));
    void* barriers = nullptr;
    constexpr size_t kBytes = CudaStream::kBarriers * sizeof(uint32_t);
    auto made = state_->check(cudaMalloc(&barriers, kBytes), "cudaMalloc");
    auto owner = std::make_unique<CudaStream>(state_, stream, static_cast<uint32_t*>(barriers), info_.threads);
    BOLIDE_TRY(std::move(made));
    BOLIDE_TRY(state_->check(cudaMemsetAsync(barriers, 0, kBytes, stream), "cudaMemsetAsync"));
    return std::unique_ptr<Stream>(std::move(owner));
  }

  Result<std::unique_ptr<Event>> make_event() override {
    BOLIDE_TRY(state_->enter());
    cudaEvent_t event = nullptr;
    BOLIDE_TRY(state_->check(cudaEventCreate(&event), "cudaEventCreate"));
    return std::unique_ptr<Event>(std::make_unique<CudaEvent>(state_, event));
  }

  Result<size_t> free_memory() override {
    BOLIDE_TRY(state_->enter());
    size_t free = 0, total = 0;
    BOLIDE_TRY(state_->check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo"));
    return free;
  }

  const DeviceInfo& info() const override { return info_; }

 private:
  std::shared_ptr<CudaState> state_;
  DeviceInfo info_;
};

}  // namespace

Result<> CudaState::check(int value, std::string_view call) {
  const auto status = static_cast<cudaError_t>(value);
  if (status == cudaSuccess) return {};
  cudaGetLastError();  // else the next call would report this one again
  std::string text = fmt::format("{}: {}: {}", call, cudaGetErrorName(status), cudaGetErrorString(status));
  if (status == cudaErrorMemoryAllocation) return error(Code::kOutOfMemory, std::move(text));
  if (!is_sticky(status)) return error(Code::kInternal, std::move(text));
  const std::lock_guard lock(mutex_);
  if (failure_.empty()) failure_ = text;
  failed_.store(true, std::memory_order_release);
  return error(Code::kUnavailable, fmt::format("cuda:{} has failed and can do nothing more: {}", index_, text));
}

Result<> CudaState::enter() {
  if (failed_.load(std::memory_order_acquire)) [[unlikely]] {
    const std::lock_guard lock(mutex_);
    return error(Code::kUnavailable, fmt::format("cuda:{} failed earlier: {}", index_, failure_));
  }
  return check(cudaSetDevice(index_), "cudaSetDevice");
}

Result<const CublasLt*> CudaState::cublaslt() {
  BOLIDE_TRY(enter());
  const std::lock_guard lock(mutex_);
  if (cublaslt_ == nullptr) {
    BOLIDE_TRY(cublaslt_, load_cublaslt(libraries_));
  }
  return cublaslt_.get();
}

Result<Matmuls*> CudaState::matmuls() {
  BOLIDE_TRY(cublaslt());
  const std::lock_guard lock(mutex_);
  if (matmuls_ == nullptr) matmuls_ = std::make_shared<Matmuls>(cublaslt_, gpu_.compute_capability);
  return matmuls_.get();
}

DeviceKind auto_device() {
  int driver = 0, major = 0, minor = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) return DeviceKind::kCpu;
  std::string why;
  if (const auto count = count_devices(); !count) {
    why = count.error().text;
  } else if (cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0) != cudaSuccess ||
             cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0) != cudaSuccess || major < 8) {
    why = fmt::format("cuda:0 has compute capability {}.{}, and the kernels need 8.0", major, minor);
  } else {
    return DeviceKind::kCuda;
  }
  log::warning("the GPU cannot be used; running on the CPU (--device cpu says so without this warning)",
               {{"why", std::string_view(why)}});
  return DeviceKind::kCpu;
}

Result<std::unique_ptr<Device>> make_cuda_device(const CudaOptions& options) {
  BOLIDE_TRY(const int count, count_devices());
  if (options.index < 0 || options.index >= count)
    return error(Code::kNotFound, fmt::format("--device cuda:{}: there {} (cuda:0{})", options.index,
                                              count == 1 ? "is one GPU" : fmt::format("are {} GPUs", count),
                                              count == 1 ? "" : fmt::format(" to cuda:{}", count - 1)));
  if (std::error_code failure; !options.libraries.empty() && !std::filesystem::is_directory(options.libraries, failure))
    return error(Code::kNotFound, fmt::format("--cuda-libs {}: there is no such folder", options.libraries.string()));
  BOLIDE_TRY(const auto host, make_cpu_device(options.threads, std::nullopt));
  auto state = std::make_shared<CudaState>(options.index, find_cuda_libraries(options.libraries));
  BOLIDE_TRY(state->enter());
  DeviceInfo info = host->info();
  info.id = {DeviceKind::kCuda, static_cast<int16_t>(options.index)};
  BOLIDE_TRY(info.gpu, read_gpu(*state));
  state->set_gpu(*info.gpu);
  const int capability = info.gpu->compute_capability;
  info.name = fmt::format("{}, {} SMs, sm_{}", info.gpu->name, info.gpu->multiprocessors, capability);
  if (capability < 80)
    return error(Code::kUnsupported, fmt::format("--device cuda:{}: {} is older than sm_80 (Ampere); use --device cpu",
                                                 options.index, info.name));
  // Opened now: what is planned depends on it.
  if (const auto matmuls = state->matmuls(); matmuls) {
    info.gpu->cublaslt_version = static_cast<int64_t>((*matmuls)->version());
    state->set_gpu(*info.gpu);
  } else {
    log::warning("cuBLASLt cannot be used: products of many tokens will be several times slower",
                 {{"why", std::string_view(matmuls.error().text)}});
  }
  return std::unique_ptr<Device>(std::make_unique<CudaDevice>(std::move(state), std::move(info)));
}

}  // namespace bolide
