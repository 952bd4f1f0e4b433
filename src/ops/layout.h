// The kernels of layout_moves.cc, whose rows are in layout.cc.
#pragma once

#include "ir/op_def.h"

namespace bolide::layout {

Result<> run_transpose(RunContext& c);
Result<> run_concat(RunContext& c);
Result<> run_split(RunContext& c);
Result<> run_slice(RunContext& c);
Result<> run_pad(RunContext& c);
Result<> run_tile(RunContext& c);
Result<> run_tile_of_axis(RunContext& c);  // the first version
Result<> run_depth_to_space(RunContext& c);
Result<> run_space_to_depth(RunContext& c);
Result<> run_reverse_sequence(RunContext& c);
Result<> run_center_crop_pad(RunContext& c);

}  // namespace bolide::layout
