#include "device/cuda/matmul.h"
#include "kernels/common/cuda.h"
#include "kernels/general/general.h"

namespace bolide {
namespace {

bool is_half(DType dtype) { return dtype == DType::kF16 || dtype == DType::kBF16; }
bool is_aligned16(const void* data) { return reinterpret_cast<uintptr_t>(data) % 16 == 0; }

}  // namespace

Result<> launch_elements(Stream& stream, const ElementsJob& job) {
  return launched(stream, run_elements(target_of(stream), job), "elements");
}
Result<> launch_turn(Stream& stream, const TurnJob& job) {
  return launched(stream, run_turn(target_of(stream), job), "turn");
}
Result<> launch_gather(Stream& stream, const GatherJob& job) {
  return launched(stream, run_gather(target_of(stream), job), "gather");
}
Result<> launch_mapped(Stream& stream, const MappedJob& job) {
  return launched(stream, run_mapped(target_of(stream), job), "mapped");
}
Result<> launch_gather_elements(Stream& stream, const GatherElementsJob& job) {
  return launched(stream, run_gather_elements(target_of(stream), job), "gather_elements");
}
Result<> launch_resample(Stream& stream, const ResampleJob& job) {
  return launched(stream, run_resample(target_of(stream), job), "resample");
}
Result<> launch_arg(Stream& stream, const ArgJob& job) {
  return launched(stream, run_arg(target_of(stream), job), "arg");
}
Result<> launch_top_k(Stream& stream, const TopKJob& job) {
  return launched(stream, run_top_k(target_of(stream), job), "top_k");
}
Result<> launch_channels(Stream& stream, const ChannelsJob& job) {
  return launched(stream, run_channels(target_of(stream), job), "channels");
}
Result<> launch_moments(Stream& stream, const MomentsJob& job) {
  return launched(stream, run_moments(target_of(stream), job), "moments");
}
Result<> launch_local_norm(Stream& stream, const LocalNormJob& job) {
  return launched(stream, run_local_norm(target_of(stream), job), "local_norm");
}
Result<> launch_fold(Stream& stream, const FoldJob& job) {
  return launched(stream, run_fold(target_of(stream), job), "fold");
}
Result<> launch_reduce(Stream& stream, const ReduceJob& job) {
  return launched(stream, run_reduce(target_of(stream), job), "reduce");
}
Result<> launch_softmax(Stream& stream, const SoftmaxJob& job) {
  return launched(stream, run_softmax(target_of(stream), job), "softmax");
}
Result<> launch_norm(Stream& stream, const NormJob& job) {
  return launched(stream, run_norm(target_of(stream), job), "norm");
}
Result<> launch_pool(Stream& stream, const PoolJob& job) {
  return launched(stream, run_pool(target_of(stream), job), "pool");
}
Result<> launch_grouped(Stream& stream, const GroupedJob& job) {
  return launched(stream, run_grouped(target_of(stream), job), "grouped");
}

Result<> launch_attend(Stream& stream, const AttendJob& job) {
  bool half = is_half(job.dtype) && job.D % 8 == 0 && job.Dv % 8 == 0 && job.D <= 128 && job.Dv <= 128;
  for (const AttendJob::Heads* heads : {&job.q, &job.k, &job.v, &job.out})
    half = half && is_aligned16(heads->data) && heads->batch % 8 == 0 && heads->head % 8 == 0 && heads->row % 8 == 0;
  const CudaTarget target = target_of(stream);
  return launched(stream, half ? run_attend_half(target, job) : run_attend_any(target, job), "attend");
}

bool is_tiled_product(const ProductJob& job) {
  const int64_t each = is_half(job.dtype) ? 8 : 4;  // elements in 16 bytes
  if ((!is_half(job.dtype) && job.dtype != DType::kF32) || job.K % each != 0 || job.K == 0 || !is_aligned16(job.a) ||
      !is_aligned16(job.b) || job.b_stride % each != 0 || job.b_batch % each != 0 || job.M == 0 || job.N == 0 ||
      !is_aligned16(job.out) || job.out_batch % each != 0)
    return false;
  const Epilogue& e = job.epilogue;
  if (e.residual != nullptr &&
      (!is_aligned16(e.residual) || e.residual_stride % 8 != job.out_stride % 8 || e.residual_batch % each != 0))
    return false;
  if (job.is_convolution)
    return (job.at.C == 4 || job.at.C % each == 0) && job.at.N * job.at.H * job.at.W * job.at.C < int64_t{1} << 31;
  return job.a_stride % each == 0 && job.a_batch % each == 0;
}

Result<bool> launch_product(Stream& stream, const ProductJob& job, int choice) {
  if (job.M == 0 || job.N == 0 || job.batch == 0) return true;
  const CudaTarget target = target_of(stream);
  if (choice == kNoSuchChoice) {
    BOLIDE_TRY(launched(stream, run_product_any(target, job), "product_any"));
    return true;
  }
  const int status = run_product_tiled(target, job, choice);
  if (status == kNoSuchChoice) return false;
  BOLIDE_TRY(launched(stream, status, "product_tiled"));
  return true;
}

namespace {

Matmul matmul_of(const ProductJob& job) {
  Matmul product{.tokens = job.M, .n = job.N, .k = job.K};
  product.x = {job.a, job.dtype, job.a_stride};
  product.weight = {job.b, job.dtype, job.b_stride};
  product.out = {job.out, job.dtype, job.out_stride};
  if (job.epilogue.residual != nullptr)
    product.residual = {job.epilogue.residual, job.dtype, job.epilogue.residual_stride};
  product.bias = job.epilogue.bias_narrow;
  product.relu = job.epilogue.then.op == ElementOp::kRelu;
  return product;
}

}  // namespace

Result<std::vector<LibraryAlgorithm>> library_algorithms(Stream& stream, const ProductJob& job, MutableBytes workspace,
                                                         int count) {
  const Epilogue& e = job.epilogue;
  if (job.is_convolution || job.batch != 1 || e.alpha != 1 || (e.bias != nullptr && e.bias_narrow == nullptr))
    return std::vector<LibraryAlgorithm>{};
  const auto matmuls = as_cuda(stream).state().matmuls();
  if (!matmuls) return std::vector<LibraryAlgorithm>{};
  return (*matmuls)->candidates(matmul_of(job), workspace, count);
}

Result<> launch_library(Stream& stream, const ProductJob& job, const LibraryAlgorithm& algorithm,
                        MutableBytes workspace) {
  BOLIDE_TRY(Matmuls * matmuls, as_cuda(stream).state().matmuls());
  BOLIDE_TRY(matmuls->run(matmul_of(job), algorithm, workspace, as_cuda(stream).handle()));
  const Element& then = job.epilogue.then;
  if (then.op == ElementOp::kCopy || then.op == ElementOp::kRelu) return {};
  ElementsJob rest{.element = then, .rank = 2};
  rest.dims[0] = job.M, rest.dims[1] = job.N;
  rest.in[0] = {job.out, job.dtype, {job.out_stride, 1}};
  if (job.out_stride == job.N) rest.rank = 1, rest.dims[0] = job.M * job.N, rest.in[0].strides[0] = 1;
  rest.out = rest.in[0];
  return launch_elements(stream, rest);
}

int product_choices() { return product_tiled_choices(); }

}  // namespace bolide
