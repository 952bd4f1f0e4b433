// Kernels of general ops (ONNX) on GPUs: each function enqueues one job of general_parts.h on a stream of a GPU. Sizes
// and pointers are the caller's to check. Launches can be captured. In builds without CUDA every one is kUnavailable.
#pragma once

#include <array>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "device/device.h"
#include "kernels/general/general_parts.h"

namespace bolide {

Result<> launch_elements(Stream& stream, const ElementsJob& job);
Result<> launch_turn(Stream& stream, const TurnJob& job);
Result<> launch_gather(Stream& stream, const GatherJob& job);
Result<> launch_mapped(Stream& stream, const MappedJob& job);
Result<> launch_gather_elements(Stream& stream, const GatherElementsJob& job);
Result<> launch_resample(Stream& stream, const ResampleJob& job);
Result<> launch_arg(Stream& stream, const ArgJob& job);
Result<> launch_top_k(Stream& stream, const TopKJob& job);
Result<> launch_channels(Stream& stream, const ChannelsJob& job);
Result<> launch_moments(Stream& stream, const MomentsJob& job);
Result<> launch_local_norm(Stream& stream, const LocalNormJob& job);
Result<> launch_fold(Stream& stream, const FoldJob& job);
Result<> launch_reduce(Stream& stream, const ReduceJob& job);
Result<> launch_softmax(Stream& stream, const SoftmaxJob& job);
Result<> launch_norm(Stream& stream, const NormJob& job);
Result<> launch_pool(Stream& stream, const PoolJob& job);
Result<> launch_grouped(Stream& stream, const GroupedJob& job);
// With tensor cores where element types, sizes and alignment allow it.
Result<> launch_attend(Stream& stream, const AttendJob& job);

// True if tensor cores can do the product.
bool is_tiled_product(const ProductJob& job);
// `choice`: as run_product_tiled takes it; kNoSuchChoice: without tensor cores. False: not for this product.
Result<bool> launch_product(Stream& stream, const ProductJob& job, int choice);
int product_choices();

// How cuBLASLt does a product: one of its algorithms, for its version and this GPU.
using LibraryAlgorithm = std::array<std::byte, 64>;
inline constexpr size_t kLibraryWorkspace = size_t{32} << 20;
// Those that it ranks first, at most `count`; none: it cannot do the product, or is not there.
Result<std::vector<LibraryAlgorithm>> library_algorithms(Stream& stream, const ProductJob& job, MutableBytes workspace,
                                                         int count);
// What it cannot do at the end follows in a kernel of ours.
Result<> launch_library(Stream& stream, const ProductJob& job, const LibraryAlgorithm& algorithm,
                        MutableBytes workspace);

// An activation that a product can do to its results.
bool can_follow_product(ElementOp op);

}  // namespace bolide
