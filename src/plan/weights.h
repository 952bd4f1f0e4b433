// WeightStore: the weights of a graph in the layouts its kernels read. Weights that a kernel reads as the checkpoint
// has them stay mapped; the others are packed once into anonymous memory and the source pages are released. For a
// device with memory of its own (WeightUpload) all of them go there, a piece at a time.
//
// Thread rules: built by one thread; const use from any.
#pragma once

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "base/function_ref.h"
#include "formats/weight_source.h"
#include "ir/graph.h"
#include "kernels/kernel.h"
#include "plan/weight_upload.h"

namespace bolide {

struct StoredWeight {
  ValueId value = kNoValue;
  const Packing* packing = nullptr;  // null: the checkpoint's rows, or f32 for a 1-D weight
  TensorView view;                   // shape, dtype and quant of the weight; data in the packing's layout
  size_t bytes = 0;
  bool mapped = false;  // true: pages of a file; false: anonymous memory, or that of view.device
  std::shared_ptr<const void> owner;
};

struct PackProgress {
  size_t done = 0, total = 0;  // weights
};

class WeightStore {
 public:
  using Use = std::pair<ValueId, const Packing*>;
  // The memory that `pack` takes for weights in layouts of their own.
  static size_t packed_bytes(const Graph& graph, std::span<const Use> uses);
  // The memory of a device that they take.
  static size_t device_bytes(const Graph& graph, std::span<const Use> uses);
  // Reads, checks and packs every use once, to host memory or through `upload`. Errors name the tensor.
  static Result<WeightStore> pack(const Graph& graph, std::span<const Use> uses, const WeightSource& source,
                                  Workers& workers, const FunctionRef<void(PackProgress)>* progress = nullptr,
                                  WeightUpload* upload = nullptr);

  // The same from weights that are packed already, as `have` lists them, on the host: a use whose layout is there is
  // taken as it is, the others are unpacked and packed anew; `repacked` counts those.
  static Result<WeightStore> adopt(const Graph& graph, std::span<const Use> uses, std::span<const StoredWeight> have,
                                   Workers& workers, int* repacked, WeightUpload* upload = nullptr);

  // What `pack` would make, without any bytes: to look at plans, not to run them.
  static WeightStore outline(const Graph& graph, std::span<const Use> uses);

  void add(StoredWeight weight);
  bool contains(ValueId value, const Packing* packing) const { return index_.contains({value, packing}); }
  const StoredWeight& find(ValueId value, const Packing* packing) const;
  std::span<const StoredWeight> all() const { return weights_; }
  size_t bytes() const;
  size_t anonymous_bytes() const;
  // The file or folder that the weights are of, for errors that are found when they are used.
  const std::string& label() const { return label_; }
  void set_label(std::string label) { label_ = std::move(label); }

 private:
  std::string label_;
  std::vector<StoredWeight> weights_;
  std::map<Use, size_t> index_;
};

}  // namespace bolide
