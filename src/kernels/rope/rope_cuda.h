// Rope, KvWrite and RopeKvWrite on a GPU. Activations all f32 or all bf16, pools f32 or bf16, up to 512 rotated dims.
// A token whose slot is negative is rotated and not stored.
#pragma once

#include <span>

#include "kernels/kernel.h"

namespace bolide {

std::span<const Kernel> rope_cuda_kernels();

}  // namespace bolide
