// The kernels of image_resize.cc and image_sample.cc, whose rows are in image.cc.
#pragma once

#include <optional>
#include <vector>

#include "ir/op_def.h"

namespace bolide::image {

Result<> run_resize(RunContext& c);            // from version 11 on
Result<> run_resize_by_scales(RunContext& c);  // Resize of version 10, Upsample of 7 and 9

// What they do along axes: out[i] = sum of weights[i * count + k] * in[indices[i * count + k]]; no weights: one tap, 1.
struct Resampling {
  struct Axis {
    int axis = 0;
    int64_t count = 1;
    std::vector<int64_t> indices;
    std::vector<double> weights;
  };
  Shape shape;             // of the result
  std::vector<Axis> axes;  // those that change; none if the result has no elements
};
// Input 0 needs no contents. nullopt: what lies outside a region has a value of its own.
Result<std::optional<Resampling>> resampling_of(const RunContext& c, bool by_scales);

Result<> run_upsample_of_image(RunContext& c);  // the first version
Result<> run_grid_sample(RunContext& c);
Result<> run_affine_grid(RunContext& c);

}  // namespace bolide::image
