// WeightSource: named tensors of a checkpoint, whatever file they come from.
//
// Names are Hugging Face's (`model.layers.0.self_attn.q_proj.weight`, `lm_head.weight`); the raw sources of one GGUF
// file (gguf.h) keep that file's names until load/ renames them.
// Thread rules: every const member may be called from any thread; a source never changes after it was opened.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "base/workers.h"
#include "tensor/tensor.h"

namespace bolide {

struct WeightInfo {
  std::string name;
  DType dtype = DType::kNone;          // of an element; for block-quantised weights the scheme's code type
  const QuantScheme* quant = nullptr;  // block scheme, or nullptr
  Shape shape;                         // row-major: [out, in] for a Linear, [V, E] for an embedding
  std::string scale = {};              // the tensor f32 [N] whose row n multiplies this one's; empty: none
  bool rounds_input_to_fp8 = false;    // the Linear's input is rounded token by token to f8e4m3, see fp8_checkpoint.h

  size_t row_size() const { return shape.rank == 0 ? row_bytes(dtype, quant, 1) : row_bytes(dtype, quant, shape[-1]); }
  int64_t rows() const { return shape.rank == 0 || shape[-1] == 0 ? 1 : shape.elements() / shape[-1]; }
  size_t byte_size() const { return static_cast<size_t>(rows()) * row_size(); }
};

// One tensor's bytes. Valid as long as `owner` lives; aligned for its dtype.
struct WeightData {
  WeightInfo info;
  Bytes bytes;  // contiguous rows of info.row_size() bytes
  std::shared_ptr<const void> owner;
  bool mapped = false;  // bytes lie in a mapped file: they cost page cache, not anonymous memory

  const std::byte* row(int64_t i) const { return bytes.data() + static_cast<size_t>(i) * info.row_size(); }
  // Gives back the mapped pages wholly inside `bytes` (a later read maps them again); nothing if not mapped.
  void release() const;
};

class WeightSource {
 public:
  virtual ~WeightSource() = default;
  // nullptr if there is no such tensor. Lives as long as the source.
  virtual const WeightInfo* find(std::string_view name) const = 0;
  // kNotFound names the tensor and the file. May allocate where bytes must be rearranged or expanded.
  virtual Result<WeightData> open(std::string_view name) const = 0;
  // The same; sources that compute what they give share the work among `workers`, which are the caller's alone.
  virtual Result<WeightData> open_with(std::string_view name, [[maybe_unused]] Workers& workers) const {
    return open(name);
  }
  virtual std::vector<std::string> names() const = 0;  // sorted
  // The file or folder, for messages.
  virtual const std::string& label() const = 0;

  bool has(std::string_view name) const { return find(name) != nullptr; }
};

// Allocates a tensor's bytes for a source that rearranges or expands; `owner` and `bytes` are set.
struct WritableWeight {
  WeightData data;
  MutableBytes bytes;
};
Result<WritableWeight> allocate_weight(WeightInfo info);

// The values of a weight of any float or block-quantised type, widened to float32 and times the scale of its row if it
// has one.
Result<std::vector<float>> read_floats(const WeightSource& source, std::string_view name);

}  // namespace bolide
