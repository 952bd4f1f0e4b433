#include "kernels/act/act.h"

#include "kernels/act/act_isa.h"
#include "kernels/act/act_parts.h"
#include "kernels/common/launch.h"

namespace bolide {
namespace {

static_assert(static_cast<int>(ActKind::kSilu) == 0 && static_cast<int>(ActKind::kRelu) == 3,
              "ActFunctions is indexed by ActKind");

template <class Attributes, Isa kIsa>
bool supports(const Problem& problem) {
  return attributes<Attributes>(problem) != nullptr && all_f32(problem.in) && has_isa(problem, kIsa);
}

// Whether rows follow each other without gaps in all views, so that a chunk of rows is one long row.
bool contiguous(std::span<const TensorView> in, std::span<const TensorView> out) {
  const auto dense = [](const TensorView& view) { return view.row_stride == view.cols(); };
  return std::all_of(in.begin(), in.end(), dense) && std::all_of(out.begin(), out.end(), dense);
}

// body(begin row, rows, elements a row), with all elements of a chunk as one row where memory allows it.
void for_spans(const Launch& launch, Stream& stream, bool dense, FunctionRef<void(int64_t, int64_t)> body) {
  const TensorView& out = launch.out[0];
  for_rows(stream.workers(), out.rows(), out.cols(), [&](int64_t begin, int64_t end) {
    if (dense) return body(begin, (end - begin) * out.cols());
    for (int64_t t = begin; t < end; ++t) body(t, out.cols());
  });
}

template <const isa::ActFunctions& kFunctions>
Result<> gated_act(const Launch& launch, Stream& stream) {
  const TensorView& out = launch.out[0];
  const auto function = kFunctions.gated[static_cast<size_t>(attributes<GatedAct>(launch).act)];
  const bool two = launch.in.size() == 2;
  for_spans(launch, stream, two && contiguous(launch.in, launch.out), [&](int64_t t, int64_t count) {
    const float* gate = launch.in[0].row<float>(t);
    function(gate, two ? launch.in[1].row<float>(t) : gate + out.cols(), out.row<float>(t), count);
  });
  return {};
}

template <const isa::ActFunctions& kFunctions>
Result<> activate(const Launch& launch, Stream& stream) {
  const auto function = kFunctions.plain[static_cast<size_t>(attributes<Activate>(launch).act)];
  for_spans(launch, stream, contiguous(launch.in, launch.out), [&](int64_t t, int64_t count) {
    function(launch.in[0].row<float>(t), launch.out[0].row<float>(t), count);
  });
  return {};
}

template <const isa::ActFunctions& kFunctions>
Result<> add(const Launch& launch, Stream& stream) {
  for_spans(launch, stream, contiguous(launch.in, launch.out), [&](int64_t t, int64_t count) {
    kFunctions.add(launch.in[0].row<float>(t), launch.in[1].row<float>(t), launch.out[0].row<float>(t), count);
  });
  return {};
}

constexpr Kernel kKernels[] = {
    {.name = "gated_act_avx512", .supports = supports<GatedAct, Isa::kAvx512>, .launch = gated_act<isa::kActAvx512>},
    {.name = "gated_act_avx2", .supports = supports<GatedAct, Isa::kAvx2>, .launch = gated_act<isa::kActAvx2>},
    {.name = "gated_act_ref",
     .supports = supports<GatedAct, Isa::kScalar>,
     .launch = act::gated_act_ref,
     .reference = true},
    {.name = "activate_avx512", .supports = supports<Activate, Isa::kAvx512>, .launch = activate<isa::kActAvx512>},
    {.name = "activate_avx2", .supports = supports<Activate, Isa::kAvx2>, .launch = activate<isa::kActAvx2>},
    {.name = "activate_ref",
     .supports = supports<Activate, Isa::kScalar>,
     .launch = act::activate_ref,
     .reference = true},
    {.name = "add_avx512", .supports = supports<Add, Isa::kAvx512>, .launch = add<isa::kActAvx512>},
    {.name = "add_avx2", .supports = supports<Add, Isa::kAvx2>, .launch = add<isa::kActAvx2>},
    {.name = "add_ref", .supports = supports<Add, Isa::kScalar>, .launch = act::add_ref, .reference = true},
};

}  // namespace

std::span<const Kernel> act_kernels() { return kKernels; }

}  // namespace bolide
