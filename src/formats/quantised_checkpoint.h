// Hugging Face checkpoints with planar quantisation (GPTQ, AWQ, fp8), shown as plain float32 `*.weight` tensors.
//
// A source here wraps the checkpoint's own. Quantised modules appear as `<module>.weight` and are expanded when opened;
// the tensors that they are made of (qweight, scales, ...) are hidden; everything else passes through.
#pragma once

#include <map>
#include <memory>
#include <set>

#include "formats/model_config.h"
#include "formats/weight_source.h"

namespace bolide {

// `inner` itself if `config` names no quantisation. Checks the shapes of every quantised module.
Result<std::shared_ptr<const WeightSource>> expand_quantised(std::shared_ptr<const WeightSource> inner,
                                                             const ModelConfig& config);

// The methods; expand_quantised chooses.
Result<std::shared_ptr<const WeightSource>> expand_gptq(std::shared_ptr<const WeightSource> inner,
                                                        const QuantizationConfig& config);
Result<std::shared_ptr<const WeightSource>> expand_awq(std::shared_ptr<const WeightSource> inner,
                                                       const QuantizationConfig& config);
// Also sets rounds_input_to_fp8 on the Linears of checkpoints whose inputs are quantised dynamically per token: the
// model means x' = s * f8e4m3(clamp(x / s, -448, 448)) with s = max(max|x| / 448, 2^-23) for each token's input x.
Result<std::shared_ptr<const WeightSource>> expand_fp8(std::shared_ptr<const WeightSource> inner,
                                                       const QuantizationConfig& config);

// What the methods have in common. A method adds modules while it is set up, and expands one at a time.
class ExpandingSource : public WeightSource {
 public:
  explicit ExpandingSource(std::shared_ptr<const WeightSource> inner) : inner_(std::move(inner)) {}

  const WeightInfo* find(std::string_view name) const override;
  Result<WeightData> open(std::string_view name) const override;
  std::vector<std::string> names() const override;
  const std::string& label() const override { return inner_->label(); }

 protected:
  const WeightSource& inner() const { return *inner_; }
  // `module`: the name without ".weight"; shape [N, K] of the weight.
  void add_module(const std::string& module, const Shape& shape, bool rounds_input_to_fp8 = false);
  void hide(std::string name) { hidden_.insert(std::move(name)); }
  // Writes the weight, float32 [N, K].
  virtual Result<> expand(const std::string& module, const Shape& shape, float* out) const = 0;

  Error module_error(const std::string& module, std::string_view what) const;
  // The info of a tensor that must be there with this type (kNone: any float type) and shape.
  Result<const WeightInfo*> require(const std::string& name, DType dtype, const Shape& shape) const;

 private:
  std::shared_ptr<const WeightSource> inner_;
  std::map<std::string, WeightInfo, std::less<>> modules_;  // by "<module>.weight"
  std::set<std::string, std::less<>> hidden_;
};

// Modules of `source` that have a tensor called `<module><ending>`, without the ending.
std::vector<std::string> modules_with(const WeightSource& source, std::string_view ending);

}  // namespace bolide
