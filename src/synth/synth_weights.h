// SynthWeights: a checkpoint that is nowhere stored. Each tensor is made when it is opened, from the seed and its name,
// so the same request gives the same bytes in any order and on any number of threads.
//
// Weights of Linears are normal with standard deviation 1 / sqrt(K), embeddings with 0.02, gains of norms lie around 1:
// values and logits stay as large as a trained model's, however deep the network is.
// Thread rules: those of WeightSource; one opening at a time uses the pool of threads, others do their work alone.
#pragma once

#include <map>
#include <memory>
#include <mutex>

#include "base/workers.h"
#include "formats/weight_source.h"
#include "models/decoder.h"
#include "synth/architectures.h"
#include "synth/scratch.h"

namespace bolide {

class SynthWeights final : public WeightSource {
 public:
  // `threads`: 0: the cores that this process may use. Tensors have the names, types and shapes of a file as it is
  // published: quantised modules are the tensors that they are made of (qweight, scales, ...).
  static Result<std::shared_ptr<const SynthWeights>> create(const SynthRequest& request, int threads = 0);

  const WeightInfo* find(std::string_view name) const override;
  Result<WeightData> open(std::string_view name) const override;
  std::vector<std::string> names() const override;
  const std::string& label() const override { return label_; }

  // In the order of the layers: that of files.
  const std::vector<std::string>& in_order() const { return order_; }
  int64_t parameters() const { return parameters_; }  // of the model: no scales or zero points
  uint64_t byte_size() const { return byte_size_; }   // of all tensors

 private:
  enum class Content : uint8_t { kFloats, kFloat8, kInt4, kInt4Zeros, kGroupIndex, kBlocks };
  struct Tensor {
    WeightInfo info;
    Content content = Content::kFloats;
    float centre = 0, deviation = 0;  // of floats; of blocks the deviation of the decoded values
  };

  SynthWeights(const SynthRequest& request, int threads);
  Result<> add_tensors();
  void add(Tensor tensor);
  void add_floats(std::string name, DType dtype, const Shape& shape, float centre, float deviation);
  void add_module(const DecoderSpec& spec, Slot slot, const std::string& module, int64_t rows);
  void add_matrix(Slot slot, const std::string& module, int64_t n, int64_t k);
  void add_float8(const std::string& module, int64_t n, int64_t k, float deviation);
  void add_int4(const std::string& module, int64_t n, int64_t k, float deviation);
  void add_blocks(Slot slot, const std::string& module, int64_t n, int64_t k, float deviation);
  void fill(const Tensor& tensor, MutableBytes out) const;
  // chunk(begin, end) for parts of [0, count) that begin at multiples of `step`, itself one of 8, on the pool if it is
  // free.
  void in_chunks(int64_t count, int64_t step, FunctionRef<void(int64_t, int64_t)> chunk) const;

  SynthRequest request_;
  std::string label_;
  std::map<std::string, Tensor, std::less<>> tensors_;
  std::vector<std::string> order_;
  int64_t parameters_ = 0;
  uint64_t byte_size_ = 0;
  int threads_ = 1;
  mutable std::mutex pool_in_use_;
  mutable std::unique_ptr<Workers> pool_;
  std::shared_ptr<Scratch> scratch_ = std::make_shared<Scratch>();
};

}  // namespace bolide
