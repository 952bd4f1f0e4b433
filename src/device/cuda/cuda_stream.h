// The CUDA side of Device and Stream, for *_cuda.cc files and comm: what a .cu file launches on, and how its errors
// become Results. No CUDA header: a cudaStream_t is a CUstream_st*, and a cudaError_t travels as an int (0: success).
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "device/cuda/launch_watch_parts.h"
#include "device/cuda/library.h"
#include "device/device.h"

struct CUstream_st;

namespace bolide {

struct CublasLt;
class Matmuls;

// What the streams of one device share, and outlives them. Any thread.
class CudaState {
 public:
  CudaState(int index, CudaLibraries libraries) : index_(index), libraries_(std::move(libraries)) {}

  // The result of a CUDA call: kOutOfMemory, kUnavailable for an error after which the device does nothing any more
  // (remembered: see alive), else kInternal. The text has the call, the error's name and what CUDA says of it.
  Result<> check(int status, std::string_view call);
  // Makes this the thread's device; kUnavailable once the device has failed, with the first such error.
  Result<> enter();
  int index() const { return index_; }
  // Read before the state is shared.
  const GpuInfo& gpu() const { return gpu_; }
  void set_gpu(const GpuInfo& gpu) { gpu_ = gpu; }
  const CudaLibraries& libraries() const { return libraries_; }
  // cuBLASLt, opened when it is first asked for. Errors name the places that were searched.
  Result<const CublasLt*> cublaslt();
  // Products by it.
  Result<Matmuls*> matmuls();

 private:
  const int index_;
  const CudaLibraries libraries_;
  GpuInfo gpu_;
  std::atomic<bool> failed_{false};
  std::mutex mutex_;
  std::string failure_;
  std::shared_ptr<const CublasLt> cublaslt_;
  std::shared_ptr<Matmuls> matmuls_;
};

class CudaStream final : public Stream {
 public:
  // `barriers`: memory of the device, kBarriers zeros, which the stream then owns.
  CudaStream(std::shared_ptr<CudaState> state, CUstream_st* stream, uint32_t* barriers, int threads)
      : state_(std::move(state)), stream_(stream), barriers_(barriers), workers_(threads) {}
  ~CudaStream() override;

  Result<> copy(TensorView dst, TensorView src) override;
  Result<> fill(MutableBytes memory, std::byte value) override;
  Result<> record(Event& event) override;
  Result<> wait(const Event& event) override;
  Result<std::unique_ptr<Captured>> capture(std::function<Result<>(Stream&)> body) override;
  Result<> synchronize() override;
  void watch(std::vector<KernelLaunch>* launches) override { watch_ = {launches == nullptr ? nullptr : see, launches}; }
  Workers& workers() override { return workers_; }

  CUstream_st* handle() const { return stream_; }
  // What tells of launches; null: nobody wants to know.
  const LaunchWatch* launch_watch() const { return watch_.see == nullptr ? nullptr : &watch_; }
  CudaState& state() const { return *state_; }
  // Zeros between kernels, for the blocks of one kernel to count in. What is captured keeps this stream's, so it may
  // run on another stream only while nothing of this one does.
  static constexpr size_t kBarriers = 64;
  uint32_t* barriers() const { return barriers_; }
  // True if this is the one stream of its GPU whose kernels may start block by block though their blocks wait for each
  // other, from the first call to the stream's end: those of all others are to start as a whole or not at all, so that
  // no two hold what the other waits for. What holds multiprocessors without end besides (kernels that wait for another
  // GPU's) must not run beside it. False for all where other processes' kernels run at the same time (MPS).
  bool claim_waiting() const;

 private:
  // LaunchWatch::see of a vector of KernelLaunch.
  static void see(void* launches, const CudaLaunch& launch);

  std::shared_ptr<CudaState> state_;
  CUstream_st* stream_;
  uint32_t* barriers_;
  LaunchWatch watch_;
  Workers workers_;
};

// The stream of a CUDA kernel's launch: such kernels are never given another.
inline CudaStream& as_cuda(Stream& stream) { return static_cast<CudaStream&>(stream); }

}  // namespace bolide
