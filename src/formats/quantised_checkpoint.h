// Hugging Face checkpoints with planar quantisation (GPTQ, AWQ, fp8).
//
// A source here wraps the checkpoint's own. Quantised modules appear as `<module>.weight` in a form that kernels read:
// w4_* blocks for 4-bit codes in groups of 32, 64 or 128 along K; float8 codes with a scale a row in a tensor beside
// them; float32 for everything else, computed when it is opened. The tensors that they are made of (qweight, scales,
// ...) are hidden; everything else passes through.
#pragma once

#include <map>
#include <memory>
#include <set>

#include "formats/model_config.h"
#include "formats/weight_source.h"

namespace bolide {

// `inner` itself if `config` names no quantisation. Checks the shapes of every quantised module.
Result<std::shared_ptr<const WeightSource>> read_quantised(std::shared_ptr<const WeightSource> inner,
                                                           const ModelConfig& config);

// The methods; read_quantised chooses.
Result<std::shared_ptr<const WeightSource>> read_gptq(std::shared_ptr<const WeightSource> inner,
                                                      const QuantizationConfig& config);
Result<std::shared_ptr<const WeightSource>> read_awq(std::shared_ptr<const WeightSource> inner,
                                                     const QuantizationConfig& config);
// Also sets rounds_input_to_fp8 on the Linears of checkpoints whose inputs are quantised dynamically per token: the
// model means x' = s * f8e4m3(clamp(x / s, -448, 448)) with s = max(max|x| / 448, 2^-23) for each token's input x.
Result<std::shared_ptr<const WeightSource>> read_fp8(std::shared_ptr<const WeightSource> inner,
                                                     const QuantizationConfig& config);

// What the methods have in common. A method adds tensors while it is set up, and makes one at a time.
class QuantisedSource : public WeightSource {
 public:
  explicit QuantisedSource(std::shared_ptr<const WeightSource> inner) : inner_(std::move(inner)) {}

  const WeightInfo* find(std::string_view name) const override;
  Result<WeightData> open(std::string_view name) const override;
  Result<WeightData> open_with(std::string_view name, Workers& workers) const override;
  std::vector<std::string> names() const override;
  const std::string& label() const override { return inner_->label(); }

 protected:
  const WeightSource& inner() const { return *inner_; }
  // A tensor of `module` that `make` computes.
  void add(std::string module, const WeightInfo& info);
  // The tensor of that name as the checkpoint has it, with this info.
  void add_stored(const WeightInfo& info);
  void hide(std::string name) { hidden_.insert(std::move(name)); }
  // Writes the rows of a tensor that was added; `out` has info.byte_size() zeroed bytes.
  virtual Result<> make(const std::string& module, const WeightInfo& info, MutableBytes out,
                        Workers& workers) const = 0;

  Error module_error(const std::string& module, std::string_view what) const;
  // The info of a tensor that must be there with this type (kNone: any float type) and shape.
  Result<const WeightInfo*> require(const std::string& name, DType dtype, const Shape& shape) const;
  // What the weight of a module of 4-bit codes is made as: w4_* blocks if groups of `group_size` and the type of
  // `<module>.scales` allow, else float32. Shape [N, K].
  WeightInfo info_of_groups(const std::string& module, const Shape& shape, int64_t bits, int64_t group_size) const;

 private:
  struct Entry {
    WeightInfo info;
    std::string module;  // empty: stored
  };

  std::shared_ptr<const WeightSource> inner_;
  std::map<std::string, Entry, std::less<>> entries_;
  std::set<std::string, std::less<>> hidden_;
};

// Modules of `source` that have a tensor called `<module><ending>`, without the ending.
std::vector<std::string> modules_with(const WeightSource& source, std::string_view ending);

// The start of a w4_* block; returns where its codes go.
std::byte* begin_w4_block(std::byte* block, uint16_t scale, uint32_t zero);

}  // namespace bolide
