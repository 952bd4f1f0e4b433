// Rates of a GPU: memory by a copy and by a kernel that only reads, arithmetic by the fastest of cuBLASLt's algorithms
// for a large product.
#include "device/cuda/gpu_rates_parts.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <random>

#include "device/cuda/cublaslt.h"
#include "device/cuda/cuda_stream.h"
#include "device/cuda/nvml.h"
#include "device/gpu_meter.h"

namespace bolide {
namespace {

constexpr size_t kMemoryBytes = size_t{1} << 30;  // of each of two buffers: many times the level-2 cache
constexpr int64_t kSide = 8192;                   // of the matrices
constexpr size_t kWorkspaceBytes = size_t{64} << 20;
constexpr int kSamplesMax = 30;
constexpr double kSampleSeconds = 0.02;

struct Arithmetic {
  const char* name;
  cudaDataType_t in, out, scale;
  cublasComputeType_t compute;
};
constexpr std::array kArithmetic = {
    Arithmetic{"bf16", CUDA_R_16BF, CUDA_R_16BF, CUDA_R_32F, CUBLAS_COMPUTE_32F},
    Arithmetic{"fp8", CUDA_R_8F_E4M3, CUDA_R_16BF, CUDA_R_32F, CUBLAS_COMPUTE_32F},
    Arithmetic{"int8", CUDA_R_8I, CUDA_R_32I, CUDA_R_32I, CUBLAS_COMPUTE_32I},
};

// Numbers of about 1 in size, as 32 bits of elements: what the multipliers toggle decides the power, and so the clock.
uint32_t random_word(cudaDataType_t type, std::mt19937& random) {
  const auto bits = static_cast<uint32_t>(random());
  switch (type) {
    case CUDA_R_16BF: return (bits & 0x80ff80ffu) | 0x3f003f00u;     // exponents 126 and 127
    case CUDA_R_8F_E4M3: return (bits & 0x8f8f8f8fu) | 0x30303030u;  // exponents 6 and 7
    default: return bits;
  }
}

class Session {
 public:
  Session(Device& device, Stream& stream, double budget_s)
      : device_(device), stream_(stream), cuda_(as_cuda(stream)), slice_s_(budget_s / (2 + kArithmetic.size())) {}

  Result<std::vector<GpuRate>> run() {
    BOLIDE_TRY(begin_, device_.make_event());
    BOLIDE_TRY(end_, device_.make_event());
    BOLIDE_TRY(memory());
    for (const Arithmetic& arithmetic : kArithmetic)
      if (auto done = products(arithmetic); !done && done.error().code == Code::kUnavailable)
        return std::move(done).error();
    return std::move(rates_);
  }

 private:
  // Seconds of `repeats` times what `enqueue` enqueues.
  Result<double> timed(int repeats, FunctionRef<Result<>()> enqueue) {
    BOLIDE_TRY(stream_.record(*begin_));
    for (int i = 0; i < repeats; ++i) BOLIDE_TRY(enqueue());
    BOLIDE_TRY(stream_.record(*end_));
    BOLIDE_TRY(stream_.synchronize());
    return end_->seconds_since(*begin_);
  }

  // `amount` bytes or operations an execution, samples until the time is up.
  Result<> sample(GpuRate rate, double amount, FunctionRef<Result<>()> enqueue) {
    BOLIDE_TRY(timed(2, enqueue));  // warm-up
    BOLIDE_TRY(const double once, timed(2, enqueue));
    const int repeats = std::clamp(static_cast<int>(kSampleSeconds / std::max(once / 2, 1e-6)), 1, 10000);
    double spent = 0;
    while (rate.samples.empty() || (spent < slice_s_ && rate.samples.size() < kSamplesMax)) {
      BOLIDE_TRY(const double seconds, timed(repeats, enqueue));
      rate.samples.push_back(amount * repeats / seconds / 1e9);
      spent += seconds;
    }
    rates_.push_back(std::move(rate));
    return {};
  }

  Result<Buffer> random_buffer(size_t bytes, cudaDataType_t type) {
    std::mt19937 random(1);
    std::vector<uint32_t> words((size_t{4} << 20) / sizeof(uint32_t));
    for (uint32_t& word : words) word = random_word(type, random);
    BOLIDE_TRY(Buffer buffer, device_.allocate(bytes, Memory::kDevice));
    const Bytes piece{reinterpret_cast<const std::byte*>(words.data()), words.size() * sizeof(uint32_t)};
    for (size_t done = 0; done < bytes; done += piece.size()) {
      const size_t count = std::min(piece.size(), bytes - done);
      BOLIDE_TRY(copy_bytes(stream_, buffer.bytes().subspan(done, count), piece.first(count)));
    }
    BOLIDE_TRY(stream_.synchronize());
    return buffer;
  }

  Result<> memory() {
    BOLIDE_TRY(const Buffer from, random_buffer(kMemoryBytes, CUDA_R_8I));
    BOLIDE_TRY(const Buffer to, device_.allocate(kMemoryBytes, Memory::kDevice));
    const int multiprocessors = cuda_.state().gpu().multiprocessors;
    BOLIDE_TRY(sample(
        {"memory_read", "GB/s", "a kernel, 16 bytes a load", {}}, static_cast<double>(kMemoryBytes), [&]() -> Result<> {
          return cuda_.state().check(gpu_read_all(cuda_.handle(), from.data(), from.size(), to.data(), multiprocessors),
                                     "reading memory");
        }));
    return sample({"memory_copy", "GB/s", "cudaMemcpyAsync on the device", {}}, 2 * static_cast<double>(kMemoryBytes),
                  [&] { return copy_bytes(stream_, to.bytes(), from.bytes()); });
  }

  Result<> products(const Arithmetic& arithmetic) {
    BOLIDE_TRY(const CublasLt* lt, cuda_.state().cublaslt());
    const size_t in_bytes = static_cast<size_t>(kSide * kSide) * (arithmetic.in == CUDA_R_16BF ? 2 : 1);
    const size_t out_bytes = static_cast<size_t>(kSide * kSide) * (arithmetic.out == CUDA_R_16BF ? 2 : 4);
    BOLIDE_TRY(const Buffer a, random_buffer(in_bytes, arithmetic.in));
    BOLIDE_TRY(const Buffer b, random_buffer(in_bytes, arithmetic.in));
    BOLIDE_TRY(const Buffer d, device_.allocate(out_bytes, Memory::kDevice));
    BOLIDE_TRY(const Buffer workspace, device_.allocate(kWorkspaceBytes, Memory::kDevice));

    // D = A^T B, the one form that every type has.
    cublasLtMatmulDesc_t operation = nullptr;
    cublasLtMatrixLayout_t in = nullptr, out = nullptr;
    cublasLtMatmulPreference_t preference = nullptr;
    auto destroy = [&](void*) {
      if (operation != nullptr) lt->MatmulDescDestroy(operation);
      if (in != nullptr) lt->MatrixLayoutDestroy(in);
      if (out != nullptr) lt->MatrixLayoutDestroy(out);
      if (preference != nullptr) lt->MatmulPreferenceDestroy(preference);
    };
    const std::unique_ptr<Session, decltype(destroy)> owner(this, destroy);
    BOLIDE_TRY(check(*lt, lt->MatmulDescCreate(&operation, arithmetic.compute, arithmetic.scale), "MatmulDescCreate"));
    const cublasOperation_t transposed = CUBLAS_OP_T;
    BOLIDE_TRY(check(*lt,
                     lt->MatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed),
                     "MatmulDescSetAttribute"));
    BOLIDE_TRY(check(*lt, lt->MatrixLayoutCreate(&in, arithmetic.in, kSide, kSide, kSide), "MatrixLayoutCreate"));
    BOLIDE_TRY(check(*lt, lt->MatrixLayoutCreate(&out, arithmetic.out, kSide, kSide, kSide), "MatrixLayoutCreate"));
    BOLIDE_TRY(check(*lt, lt->MatmulPreferenceCreate(&preference), "MatmulPreferenceCreate"));
    BOLIDE_TRY(check(*lt,
                     lt->MatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                      &kWorkspaceBytes, sizeof kWorkspaceBytes),
                     "MatmulPreferenceSetAttribute"));
    std::array<cublasLtMatmulHeuristicResult_t, 8> found{};
    int count = 0;
    BOLIDE_TRY(check(*lt,
                     lt->MatmulAlgoGetHeuristic(lt->handle, operation, in, in, out, out, preference,
                                                static_cast<int>(found.size()), found.data(), &count),
                     "MatmulAlgoGetHeuristic"));
    const float one = 1, zero = 0;
    const int32_t int_one = 1, int_zero = 0;
    const bool integers = arithmetic.scale == CUDA_R_32I;
    const void *alpha = integers ? static_cast<const void*>(&int_one) : &one,
               *beta = integers ? static_cast<const void*>(&int_zero) : &zero;
    const auto multiply = [&](int i) {
      return check(
          *lt,
          lt->Matmul(lt->handle, operation, alpha, a.data(), in, b.data(), in, beta, d.data(), out, d.data(), out,
                     &found[static_cast<size_t>(i)].algo, workspace.data(), workspace.size(), cuda_.handle()),
          "cublasLtMatmul");
    };
    int best = -1;
    double fastest = 0;
    for (int i = 0; i < count; ++i) {
      const auto enqueue = [&] { return multiply(i); };
      if (!timed(1, enqueue)) continue;
      const auto seconds = timed(3, enqueue);
      if (seconds && (best < 0 || *seconds < fastest)) best = i, fastest = *seconds;
    }
    if (best < 0) return error(Code::kUnsupported, fmt::format("cuBLASLt has no {} product", arithmetic.name));
    return sample({arithmetic.name, "Gop/s", fmt::format("cuBLASLt, {0} x {0} x {0}", kSide), {}},
                  2. * kSide * kSide * kSide, [&] { return multiply(best); });
  }

  Device& device_;
  Stream& stream_;
  CudaStream& cuda_;
  double slice_s_;
  std::unique_ptr<Event> begin_, end_;
  std::vector<GpuRate> rates_;
};

Error no_gpu(const Device& device) {
  return error(Code::kUnavailable, fmt::format("{} is no GPU", device.info().name));
}

}  // namespace

Result<std::unique_ptr<GpuMeter>> make_gpu_meter(Device& device) {
  if (device.info().id.kind != DeviceKind::kCuda) return no_gpu(device);
  BOLIDE_TRY(const auto stream, device.make_stream());
  const CudaState& state = as_cuda(*stream).state();
  BOLIDE_TRY(Nvml nvml, Nvml::open(state.libraries(), state.gpu()));
  return std::unique_ptr<GpuMeter>(std::make_unique<Nvml>(std::move(nvml)));
}

Result<std::vector<GpuRate>> measure_gpu_rates(Device& device, double budget_s) {
  if (device.info().id.kind != DeviceKind::kCuda) return no_gpu(device);
  BOLIDE_TRY(const auto stream, device.make_stream());
  return Session(device, *stream, budget_s).run();
}

}  // namespace bolide
