// The kernels of layout_moves.cc, whose rows are in layout.cc.
#pragma once

#include <vector>

#include "ir/op_def.h"

namespace bolide::layout {

Result<> run_transpose(RunContext& c);
Result<> run_concat(RunContext& c);
Result<> run_split(RunContext& c);
Result<> run_slice(RunContext& c);
Result<> run_pad(RunContext& c);
Result<> run_tile(RunContext& c);

// What Pad and Tile do to tensors of input 0's shape, as copy_mapped takes it; input 0 needs no contents. Results of no
// elements have no maps.
struct Moves {
  Shape shape;
  std::vector<std::vector<int64_t>> maps;
  Tensor fill;  // empty: zero
};
Result<Moves> moves_of_pad(const RunContext& c);
Result<Moves> moves_of_tile(const RunContext& c);

Result<> run_tile_of_axis(RunContext& c);  // the first version
Result<> run_depth_to_space(RunContext& c);
Result<> run_space_to_depth(RunContext& c);
Result<> run_reverse_sequence(RunContext& c);
Result<> run_center_crop_pad(RunContext& c);

}  // namespace bolide::layout
