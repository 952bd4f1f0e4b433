// Ops on images whose channels come last, [N, H, W, C], which passes make of ONNX's (passes/general/channels_last.cc).
// They are of the domain "bolide" and named "ChannelsLast" and the name of the op whose attributes they have:
//   ChannelsLastConv(X, W, B, Z): com.microsoft.FusedConv; W is [M, C / group, KH, KW] as ever, Y and Z are NHWC
//   ChannelsLastJoinedConv(X, W, B, Z, X1, X2, ...): the same of an image whose channels are those of X, X1, X2, ...
//   one
//     after another; `parts` [first0, count0, first1, ...], if there: only these channels of each
//   ChannelsLastMaxPool(X), ChannelsLastAveragePool(X), ChannelsLastGlobalAveragePool(X)
// Their rows turn what they get to NCHW and run the op of that name: a reference for the prepared ones.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "kernels/igemm/igemm.h"
#include "ops/prepared_op.h"
#include "ops/window.h"

namespace bolide {

inline constexpr std::string_view kChannelsLastDomain = "bolide";

// A rank-3 or rank-4 tensor's shape with its channels first, as if it had them there; no memory.
Tensor as_channels_first(const Tensor& x);
// f32 tensors of 3 or 4 dims, channels second to last place and back.
Result<Tensor> to_channels_last(RunContext& c, Isa isa, const Tensor& x);
Result<> to_channels_first(RunContext& c, Isa isa, const Tensor& x, Tensor& y);
// A window of one or two axes as kernels take it; one axis becomes the width.
igemm::Windows windows_of(const Window& window, int64_t channels);

// Channels [first, first + count) of x.
struct ChannelsPart {
  const Tensor* x = nullptr;
  int64_t first = 0, count = 0;
};
// Those that ChannelsLastJoinedConv reads, of one type, whose other dims are the same. kInvalid: they are not.
Result<std::vector<ChannelsPart>> joined_parts(const RunContext& c);

// The activation of a fused op by its name; nullopt: none that kernels know.
struct FusedActivation {
  igemm::Activation kind = igemm::Activation::kNone;
  float alpha = 0, beta = 0;
};
std::optional<FusedActivation> fused_activation(const Attributes& attributes);

// Conv, FusedConv and ChannelsLastConv whose weights and bias are constants of f32, of one or two spatial axes.
Result<std::unique_ptr<PreparedOp>> prepare_conv(const PrepareContext& context);
Result<std::unique_ptr<PreparedOp>> prepare_channels_last_conv(const PrepareContext& context);
Result<std::unique_ptr<PreparedOp>> prepare_channels_last_joined_conv(const PrepareContext& context);
Result<std::unique_ptr<PreparedOp>> prepare_channels_last_max_pool(const PrepareContext& context);
Result<std::unique_ptr<PreparedOp>> prepare_channels_last_average_pool(const PrepareContext& context);
Result<std::unique_ptr<PreparedOp>> prepare_channels_last_global_average_pool(const PrepareContext& context);

}  // namespace bolide
