// GGUF's tensor names and layout as Hugging Face's. Internal to load/, and for tests.
#pragma once

#include <memory>

#include "formats/gguf.h"
#include "models/decoder.h"

namespace bolide {

struct GgufDims {
  std::string architecture;  // general.architecture
  const Family* family = nullptr;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t experts = 0;
};

// The same tensors under Hugging Face's names: q and k rows of llama un-permuted, merged experts one by one. Tensors
// with no such name keep theirs (rope_freqs.weight and the like).
Result<std::shared_ptr<const WeightSource>> rename_gguf(std::shared_ptr<const GgufSource> source, const GgufDims& dims);

// "blk.3.attn_q.weight" to what the family's rules call that slot, "model.layers.3.self_attn.q_proj.weight"; the name
// itself if they call it nothing.
std::string hf_name(std::string_view gguf_name, const Family& family);

}  // namespace bolide
