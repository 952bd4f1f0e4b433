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
Result<> launch_reduce(Stream&, const ReduceJob&) { return absent(); }
Result<> launch_softmax(Stream&, const SoftmaxJob&) { return absent(); }
Result<> launch_norm(Stream&, const NormJob&) { return absent(); }
Result<> launch_pool(Stream&, const PoolJob&) { return absent(); }
Result<> launch_grouped(Stream&, const GroupedJob&) { return absent(); }
Result<> launch_attend(Stream&, const AttendJob&) { return absent(); }
bool is_half_product(const ProductJob&) { return false; }
Result<bool> launch_product(Stream&, const ProductJob&, int) { return absent(); }
int product_choices() { return 0; }
Result<std::vector<LibraryAlgorithm>> library_algorithms(Stream&, const ProductJob&, MutableBytes, int) {
  return std::vector<LibraryAlgorithm>{};
}
Result<> launch_library(Stream&, const ProductJob&, const LibraryAlgorithm&, MutableBytes) { return absent(); }

}  // namespace bolide
