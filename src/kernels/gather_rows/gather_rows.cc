#include "kernels/gather_rows/gather_rows.h"

#include <fmt/format.h>

#include <cstring>

#include "kernels/common/launch.h"

namespace bolide {
namespace {

bool supports(const Problem& problem) {
  return attributes<GatherRows>(problem) != nullptr && problem.in[0].dtype == DType::kF32;
}

// (x [T, E], rows i32 [R]) -> [R, E].
Result<> launch(const Launch& launch, Stream& stream) {
  const TensorView& x = launch.in[0];
  const TensorView& out = launch.out[0];
  const int32_t* rows = launch.in[1].as<int32_t>();
  const int64_t count = launch.in[1].cols(), tokens = x.rows();
  for (int64_t r = 0; r < count; ++r)
    if (rows[r] < 0 || rows[r] >= tokens)
      return error(Code::kInternal, fmt::format("row {} asks for token {} of {}", r, rows[r], tokens));
  for_rows(stream.workers(), count, x.cols() / 8, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r)
      std::memcpy(out.row<float>(r), x.row<float>(rows[r]), static_cast<size_t>(x.cols()) * sizeof(float));
  });
  return {};
}

constexpr Kernel kKernels[] = {
    {.name = "gather_rows_ref", .supports = supports, .launch = launch},
};

}  // namespace

std::span<const Kernel> gather_rows_kernels() { return kKernels; }

}  // namespace bolide
