#include "device/cuda/cuda_stream.h"

#include <cuda_runtime_api.h>

#include <array>

#include "device/cuda/cuda_event.h"
#include "device/cuda/small_copy_parts.h"

namespace bolide {
namespace {

class CudaCaptured final : public Captured {
 public:
  CudaCaptured(std::shared_ptr<CudaState> state, cudaGraphExec_t graph) : state_(std::move(state)), graph_(graph) {}
  CudaCaptured(const CudaCaptured&) = delete;
  ~CudaCaptured() override { cudaGraphExecDestroy(graph_); }

  Result<> launch(Stream& stream) override {
    BOLIDE_TRY(state_->enter());
    return state_->check(cudaGraphLaunch(graph_, as_cuda(stream).handle()), "cudaGraphLaunch");
  }

 private:
  std::shared_ptr<CudaState> state_;
  cudaGraphExec_t graph_;
};

// By GPU: the stream that has claimed waiting.
constexpr int kGpusMost = 64;
std::atomic<const CudaStream*>& waiting_of(int gpu) {
  static std::array<std::atomic<const CudaStream*>, kGpusMost> streams;
  return streams[static_cast<size_t>(gpu)];
}

// Up to here a kernel copies.
constexpr size_t kSmallCopy = 64 << 10;

// Where a kernel of the GPU finds memory, or null if it cannot: another GPU's, and the host's unless it is pinned.
void* reached(const void* memory, int gpu, bool* on_host) {
  cudaPointerAttributes attributes{};
  if (cudaPointerGetAttributes(&attributes, memory) != cudaSuccess) {
    cudaGetLastError();  // forgotten
    return nullptr;
  }
  *on_host = attributes.type == cudaMemoryTypeHost;
  const bool here = attributes.type == cudaMemoryTypeDevice && attributes.device == gpu;
  return *on_host || here ? attributes.devicePointer : nullptr;
}

}  // namespace

CudaEvent::~CudaEvent() { cudaEventDestroy(event_); }

Result<> CudaEvent::synchronize() {
  BOLIDE_TRY(state_->enter());
  return state_->check(cudaEventSynchronize(event_), "cudaEventSynchronize");
}

Result<double> CudaEvent::seconds_since(const Event& earlier) const {
  BOLIDE_TRY(state_->enter());
  float ms = 0;
  BOLIDE_TRY(state_->check(cudaEventElapsedTime(&ms, static_cast<const CudaEvent&>(earlier).event_, event_),
                           "cudaEventElapsedTime"));
  return double{ms} / 1e3;
}

// Work may still refer to memory that is freed next.
CudaStream::~CudaStream() {
  if (!state_->enter()) return;
  cudaStreamSynchronize(stream_);
  cudaStreamDestroy(stream_);
  if (const CudaStream* me = this; state_->index() < kGpusMost)
    waiting_of(state_->index()).compare_exchange_strong(me, nullptr);
  cudaFree(barriers_);
}

bool CudaStream::claim_waiting() const {
  const int gpu = state_->index();
  if (gpu >= kGpusMost) return false;
  std::atomic<const CudaStream*>& stream = waiting_of(gpu);
  const CudaStream* holder = stream.load(std::memory_order_acquire);
  if (holder != nullptr) return holder == this;
  int mps = 0;
  if (cudaDeviceGetAttribute(&mps, cudaDevAttrMpsEnabled, gpu) != cudaSuccess || mps != 0) return false;
  return stream.compare_exchange_strong(holder, this) || holder == this;
}

Result<> CudaStream::copy(TensorView dst, TensorView src) {
  BOLIDE_CHECK(dst.dtype == src.dtype && dst.shape == src.shape, "copy between {} and {}", to_string(dst.shape),
               to_string(src.shape));
  BOLIDE_TRY(state_->enter());
  const size_t bytes = static_cast<size_t>(src.rows()) * row_bytes(src.dtype, src.quant, src.cols());
  if (bytes <= kSmallCopy) {
    bool to_host = false, from_host = false;
    void* const to = reached(dst.data, state_->index(), &to_host);
    const void* const from = reached(src.data, state_->index(), &from_host);
    if (to != nullptr && from != nullptr)
      return state_->check(small_copy(stream_, to, from, bytes, !to_host), "small_copy");
  }
  return state_->check(cudaMemcpyAsync(dst.data, src.data, bytes, cudaMemcpyDefault, stream_), "cudaMemcpyAsync");
}

Result<> CudaStream::fill(MutableBytes memory, std::byte value) {
  BOLIDE_TRY(state_->enter());
  return state_->check(cudaMemsetAsync(memory.data(), static_cast<int>(value), memory.size(), stream_),
                       "cudaMemsetAsync");
}

Result<> CudaStream::record(Event& event) {
  BOLIDE_TRY(state_->enter());
  return state_->check(cudaEventRecord(static_cast<CudaEvent&>(event).handle(), stream_), "cudaEventRecord");
}

Result<> CudaStream::wait(const Event& event) {
  BOLIDE_TRY(state_->enter());
  return state_->check(cudaStreamWaitEvent(stream_, static_cast<const CudaEvent&>(event).handle(), 0),
                       "cudaStreamWaitEvent");
}

Result<std::unique_ptr<Captured>> CudaStream::capture(std::function<Result<>(Stream&)> body) {
  BOLIDE_TRY(state_->enter());
  BOLIDE_TRY(
      state_->check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture"));
  auto done = body(*this);
  cudaGraph_t graph = nullptr;
  auto ended = state_->check(cudaStreamEndCapture(stream_, &graph), "cudaStreamEndCapture");
  const std::unique_ptr<CUgraph_st, void (*)(cudaGraph_t)> owner(graph, [](cudaGraph_t g) {
    if (g != nullptr) cudaGraphDestroy(g);
  });
  BOLIDE_TRY(std::move(done));
  BOLIDE_TRY(std::move(ended));
  cudaGraphExec_t ready = nullptr;
  BOLIDE_TRY(state_->check(cudaGraphInstantiate(&ready, graph, 0), "cudaGraphInstantiate"));
  auto captured = std::make_unique<CudaCaptured>(state_, ready);
  BOLIDE_TRY(state_->check(cudaGraphUpload(ready, stream_), "cudaGraphUpload"));
  return std::unique_ptr<Captured>(std::move(captured));
}

Result<> CudaStream::synchronize() {
  BOLIDE_TRY(state_->enter());
  return state_->check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
}

}  // namespace bolide
