// In place of general_cuda.cc in builds without CUDA.
#include "kernels/general/general.h"

namespace bolide {
namespace {

Error absent() { return error(Code::kUnavailable, "this bolide was built without CUDA"); }

}  // namespace

Result<> launch_elements(Stream&, const ElementsJob&) { return absent(); }
Result<> launch_turn(Stream&, const TurnJob&) { return absent(); }
Result<> launch_gather(Stream&, const GatherJob&) { return absent(); }
Result<> launch_mapped(Stream&, const MappedJob&) { return absent(); }
Result<> launch_gather_elements(Stream&, const GatherElementsJob&) { return absent(); }
Result<> launch_resample(Stream&, const ResampleJob&) { return absent(); }
Result<> launch_arg(Stream&, const ArgJob&) { return absent(); }
Result<> launch_top_k(Stream&, const TopKJob&) { return absent(); }
Result<> launch_channels(Stream&, const ChannelsJob&) { return absent(); }
Result<> launch_moments(Stream&, const MomentsJob&) { return absent(); }
Result<> launch_local_norm(Stream&, const LocalNormJob&) { return absent(); }
Result<> launch_fold(Stream&, const FoldJob&) { return absent(); }
Result<> launch_reduce(Stream&, const ReduceJob&) { return absent(); }
Result<> launch_softmax(Stream&, const SoftmaxJob&) { return absent(); }
Result<> launch_norm(Stream&, const NormJob&) { return absent(); }
Result<> launch_pool(Stream&, const PoolJob&) { return absent(); }
Result<> launch_grouped(Stream&, const GroupedJob&) { return absent(); }
Result<> launch_attend(Stream&, const AttendJob&) { return absent(); }
bool is_tiled_product(const ProductJob&) { return false; }
Result<bool> launch_product(Stream&, const ProductJob&, int) { return absent(); }
int product_choices() { return 0; }
Result<std::vector<LibraryAlgorithm>> library_algorithms(Stream&, const ProductJob&, MutableBytes, int) {
  return std::vector<LibraryAlgorithm>{};
}
Result<> launch_library(Stream&, const ProductJob&, const LibraryAlgorithm&, MutableBytes) { return absent(); }

}  // namespace bolide
