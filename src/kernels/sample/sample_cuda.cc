#include "kernels/sample/sample_cuda.h"

#include "kernels/common/cuda.h"
#include "kernels/sample/sample_cuda_parts.h"
#include "kernels/sample/sample_parts.h"

namespace bolide {
namespace {

constexpr int64_t kVocabularyMax = 1 << 21;  // of the sums of weights in 64 bits

bool supports(const Problem& problem) {
  return attributes<Sample>(problem) != nullptr && problem.in[0].dtype == DType::kF32 &&
         problem.in[0].last().at(problem.sizes) <= kVocabularyMax;
}

size_t workspace(const Problem& problem) {
  const int64_t slots = std::min(problem.in[0].at(problem.sizes)[0], cuda::kSampleSlots);
  return static_cast<size_t>(slots * cuda::sample_slot_bytes(problem.in[0].last().at(problem.sizes)));
}

// (logits [R, V]) -> (next i32 [R], log-probability f32 [R]).
Result<> launch(const Launch& launch, Stream& stream) {
  sample::check_rows(launch);
  const CudaMatrix logits = matrix_of(launch.in[0]);
  const int64_t slots = static_cast<int64_t>(launch.workspace.size()) / cuda::sample_slot_bytes(logits.cols);
  const int status =
      cuda::sample(target_of(stream), logits, launch.batch->sampling.data(), launch.workspace.data(),
                   std::min(slots, cuda::kSampleSlots), launch.out[0].as<int32_t>(), launch.out[1].as<float>());
  return launched(stream, status, "sample_cuda");
}

constexpr Kernel kKernels[] = {
    {.name = "sample_cuda",
     .device = DeviceKind::kCuda,
     .supports = supports,
     .workspace = workspace,
     .launch = launch},
};

}  // namespace

std::span<const Kernel> sample_cuda_kernels() { return kKernels; }

}  // namespace bolide
