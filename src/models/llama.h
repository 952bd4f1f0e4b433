// Tensor names of Llama's layout, which many families share.
#pragma once

#include "models/decoder.h"

namespace bolide {

inline constexpr WeightRule kLlamaWeights[] = {
    {Slot::kEmbed, "model.embed_tokens"},
    {Slot::kAttnNorm, "model.layers.{l}.input_layernorm"},
    {Slot::kQ, "model.layers.{l}.self_attn.q_proj"},
    {Slot::kK, "model.layers.{l}.self_attn.k_proj"},
    {Slot::kV, "model.layers.{l}.self_attn.v_proj"},
    {Slot::kQNorm, "model.layers.{l}.self_attn.q_norm"},
    {Slot::kKNorm, "model.layers.{l}.self_attn.k_norm"},
    {Slot::kOut, "model.layers.{l}.self_attn.o_proj"},
    {Slot::kFfnNorm, "model.layers.{l}.post_attention_layernorm"},
    {Slot::kGate, "model.layers.{l}.mlp.gate_proj"},
    {Slot::kUp, "model.layers.{l}.mlp.up_proj"},
    {Slot::kDown, "model.layers.{l}.mlp.down_proj"},
    {Slot::kFinalNorm, "model.norm"},
    {Slot::kHead, "lm_head"},
};

}  // namespace bolide
