// The kernels of image_resize.cc and image_sample.cc, whose rows are in image.cc.
#pragma once

#include "ir/op_def.h"

namespace bolide::image {

Result<> run_resize(RunContext& c);             // from version 11 on
Result<> run_resize_by_scales(RunContext& c);   // Resize of version 10, Upsample of 7 and 9
Result<> run_upsample_of_image(RunContext& c);  // the first version
Result<> run_grid_sample(RunContext& c);
Result<> run_affine_grid(RunContext& c);

}  // namespace bolide::image
