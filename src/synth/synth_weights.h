// SynthWeights: a checkpoint that is nowhere stored. Each tensor is made when it is opened, from the seed and its name,
// so the same request gives the same bytes in any order and on any number of threads. Each core makes 2 to 4 GB/s.
//
// Weights of Linears are normal with standard deviation 1 / sqrt(K), embeddings with 0.02, gains of norms lie around 1:
// values and logits stay as large as a trained model's, however deep the network is.
// Thread rules: those of WeightSource.
#pragma once

#include <map>
#include <memory>

#include "formats/weight_source.h"
#include "models/decoder.h"
#include "synth/architectures.h"
#include "synth/scratch.h"

namespace bolide {

class SynthWeights final : public WeightSource {
 public:
  // Tensors of types that folders have are those of a file as it is published, in name, type and shape: quantised
  // modules are the tensors that they are made of (qweight, scales, ...). Those of other types are what kernels read.
  static Result<std::shared_ptr<const SynthWeights>> create(const SynthRequest& request);

  const WeightInfo* find(std::string_view name) const override;
  Result<WeightData> open(std::string_view name) const override;
  Result<WeightData> open_with(std::string_view name, Workers& workers) const override;
  std::vector<std::string> names() const override;
  const std::string& label() const override { return label_; }

  // In the order of the layers: that of files.
  const std::vector<std::string>& in_order() const { return order_; }
  int64_t parameters() const { return parameters_; }  // of the model: no scales or zero points
  uint64_t byte_size() const { return byte_size_; }   // of all tensors

 private:
  enum class Content : uint8_t { kFloats, kFloat8, kInt8, kInt4, kInt4Zeros, kGroupIndex, kBlocks };
  struct Tensor {
    WeightInfo info;
    Content content = Content::kFloats;
    float centre = 0, deviation = 0;  // of floats; of blocks the deviation of the decoded values
  };

  explicit SynthWeights(const SynthRequest& request);
  Result<> add_tensors();
  void add(Tensor tensor);
  void add_floats(std::string name, DType dtype, const Shape& shape, float centre, float deviation);
  void add_module(const DecoderSpec& spec, Slot slot, const std::string& module, int64_t rows);
  void add_matrix(Slot slot, const std::string& module, int64_t n, int64_t k);
  void add_float8(const std::string& module, int64_t n, int64_t k, float deviation);
  void add_int8(const std::string& module, int64_t n, int64_t k, float deviation);
  void add_gptq(const std::string& module, int64_t n, int64_t k, float deviation);
  void add_blocks(const std::string& module, const QuantScheme& wanted, int64_t n, int64_t k, float deviation);
  void fill(const Tensor& tensor, MutableBytes out, Workers& workers) const;

  SynthRequest request_;
  std::string label_;
  std::map<std::string, Tensor, std::less<>> tensors_;
  std::vector<std::string> order_;
  int64_t parameters_ = 0;
  uint64_t byte_size_ = 0;
  std::shared_ptr<Scratch> scratch_ = std::make_shared<Scratch>();
};

}  // namespace bolide
