// DeviceOp: how a general op runs on a GPU: a row that reads what it needs of a node, takes inputs on the device and
// enqueues kernels. A node without a row, or whose row refuses, runs on the CPU.
//
// Thread rules: a DeviceMachine and everything on it belong to one thread at a time; rows are constant.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "device/device.h"
#include "ir/op_def.h"
#include "kernels/general/general.h"
#include "kernels/kernel.h"
#include "ops/shape.h"
#include "ops/window.h"
#include "tensor/half.h"

namespace bolide {

// A tensor on the device. Its elements run on in row-major order, or, `channels_last`, [N, C, ...] as [N, ..., C].
struct DeviceTensor {
  std::shared_ptr<std::byte> memory;
  DType dtype = DType::kNone;     // as it lies there
  DType declared = DType::kNone;  // as the model has it: f32 that is kept as f16 or bf16
  Shape shape;
  bool channels_last = false;

  explicit operator bool() const { return memory != nullptr; }
  int64_t elements() const { return shape.elements(); }
  void* data() const { return memory.get(); }
  // Elements between neighbours of each axis.
  Strides strides() const;
};

// Memory of the device that is kept and given again: what a stream's work uses in turn. Blocks are never freed while
// the pool lives, so what was captured stays valid. Blocks may be given back on any thread.
class DevicePool {
 public:
  explicit DevicePool(Device& device) : state_(std::make_shared<State>(device)) {}
  // 512-byte aligned.
  Result<std::shared_ptr<std::byte>> take(size_t bytes);
  size_t bytes() const;  // in all

 private:
  struct State {
    explicit State(Device& on) : device(on) {}
    Device& device;
    std::mutex mutex;
    std::vector<Buffer> blocks;
    std::multimap<size_t, std::byte*> free;
    size_t bytes = 0;
  };
  std::shared_ptr<State> state_;
};

// Constants on the device, by contents, so that graphs made for several shapes, and sessions, share them. Any thread.
class DeviceConstants {
 public:
  explicit DeviceConstants(Device& device) : device_(device) {}
  // What `make` gives, copied to the device; made once for tensors of equal contents and equal `form`.
  Result<std::shared_ptr<std::byte>> get(const Tensor& of, std::string_view form, FunctionRef<Result<Tensor>()> make,
                                         Stream& stream);
  size_t bytes() const;

 private:
  struct Key {
    uint64_t low, high;
    std::string form;
    auto operator<=>(const Key&) const = default;
  };
  Device& device_;
  mutable std::mutex mutex_;
  std::map<Key, std::shared_ptr<std::byte>> known_;
  size_t bytes_ = 0;
};

// What measured best, by product, for all that run on a GPU; a file may keep it. Any thread.
class ProductTimings {
 public:
  struct Entry {
    Tactic tactic;  // a kernel's number, or an algorithm of the library
    double us = 0;
  };
  std::optional<Entry> find(const std::string& key) const;
  void put(const std::string& key, const Entry& entry);
  void recall(const std::string& key, const Entry& entry);  // from a file
  // What has been put since it was last asked.
  std::vector<std::pair<std::string, Entry>> take_fresh();
  // Held while a product is measured: one at a time.
  std::mutex measuring;

 private:
  mutable std::mutex mutex_;
  std::map<std::string, Entry> known_, fresh_;
};

// What a thread runs products with.
class ProductChoices {
 public:
  explicit ProductChoices(std::shared_ptr<ProductTimings> timings) : timings_(std::move(timings)) {}
  // Runs the product. The first of its sizes is measured with every kernel that can do it, unless `measure` is false.
  Result<> run(Device& device, Stream& stream, const ProductJob& job, bool measure);

 private:
  using Key = std::array<int64_t, 24>;
  struct Choice {
    int kernel = kNoSuchChoice;  // of ours
    LibraryAlgorithm library{};
    bool by_library = false;
    double seconds = 0;
  };
  static Key key_of(const ProductJob& job);
  Result<bool> launch(Stream& stream, const ProductJob& job, const Choice& choice);
  Result<Choice> measure(Device& device, Stream& stream, const ProductJob& job);
  // As timings_ knows it; nullopt: it does not, or what it knows does not run here.
  Result<std::optional<Choice>> recall(Device& device, Stream& stream, const ProductJob& job, const std::string& key);
  Result<> make_workspace(Device& device);
  std::shared_ptr<ProductTimings> timings_;
  std::map<Key, Choice> chosen_;
  Buffer workspace_;  // of the library
};

// What one thread runs networks with.
struct DeviceMachine {
  Device& device;
  Stream& stream;
  DevicePool& pool;
  DeviceConstants& constants;
  ProductChoices& choices;
  DType compute = DType::kF32;  // what floats of f32 are kept as: f32, f16 or bf16
  uint32_t* fault = nullptr;    // of the device: kernels leave a node's mark here that met an index beyond its axis
  bool capturing = false;
  bool tf32 = false;  // products of f32 may round what they multiply to tf32

  DType kept(DType declared) const { return declared == DType::kF32 ? compute : declared; }
  // The tensor with elements of `dtype`, converted if it has others.
  Result<DeviceTensor> converted(const DeviceTensor& tensor, DType dtype, bool channels_last);
  Result<DeviceTensor> make(DType dtype, DType declared, const Shape& shape, bool channels_last);
};

// A value of a network that runs: on the host, the device, or both.
struct DeviceSlot {
  AnyValue host;
  DeviceTensor device;
  bool on_host = false;
  bool is_made_there = false;  // by a kernel of the device: what the host has, if anything, is a copy
  bool is_known = false;       // the host's contents are the same in every run of these shapes
  bool is_constant = false;    // of the graph
  DType dtype = DType::kNone;
  Shape shape;
  std::vector<std::pair<std::string, std::shared_ptr<std::byte>>> packs;  // of a constant: what it was packed as
};

// One execution of a node.
class DeviceContext {
 public:
  struct Node {
    const OpDef& def;
    const Attributes& attributes;
    int64_t version = 1;
    std::span<DeviceSlot* const> inputs;  // null: absent
    size_t outputs = 1;
    uint32_t mark = 0;            // for faults
    std::vector<bool> used = {};  // outputs that something reads
    // Of a product: what follows it. A bias [N] of floats, another summand of the output's shape, an activation.
    DeviceSlot* bias = nullptr;
    DeviceSlot* residual = nullptr;
    Element then;
  };
  DeviceContext(DeviceMachine& machine, const Node& node, Workers& workers);

  const Attributes& attributes() const { return node_.attributes; }
  int64_t version() const { return node_.version; }
  std::string_view name() const { return node_.def.name; }
  const OpDef* def() const { return &node_.def; }
  size_t inputs() const { return node_.inputs.size(); }
  size_t outputs() const { return node_.outputs; }
  bool is_output_used(size_t i) const { return i < node_.used.size() && node_.used[i]; }
  bool has(size_t i) const { return i < node_.inputs.size() && node_.inputs[i] != nullptr; }
  const Shape& shape(size_t i) const { return node_.inputs[i]->shape; }
  DType dtype(size_t i) const { return node_.inputs[i]->dtype; }  // as the model declares it
  bool is_half_or_single(size_t i) const;                         // f32, f16 or bf16
  bool is_constant(size_t i) const { return node_.inputs[i]->is_constant; }
  // The contents of input i if they are the same in every run of these shapes, else null.
  const Tensor* known(size_t i) const;
  // The numbers of a known tensor of integers; `otherwise` if the input is absent; nullopt: not known.
  std::optional<std::vector<int64_t>> integers(size_t i, std::vector<int64_t> otherwise = {}) const;

  // Input i on the device: as it lies; row-major; channels last. Floats as the machine keeps them.
  Result<DeviceTensor> any(size_t i) { return on_device(*node_.inputs[i], std::nullopt); }
  Result<DeviceTensor> rows(size_t i) { return on_device(*node_.inputs[i], false); }
  Result<DeviceTensor> last(size_t i) { return on_device(*node_.inputs[i], true); }
  // As `any`, but f32 that has just come from the host may still be f32.
  Result<DeviceTensor> raw(size_t i);
  Result<DeviceTensor> on_device(DeviceSlot& slot, std::optional<bool> channels_last);
  // Input i, a vector of floats, as f32 on the device.
  Result<const float*> floats(size_t i) { return floats(*node_.inputs[i]); }
  Result<const float*> floats(DeviceSlot& slot);
  Result<const void*> narrow_bias(DeviceSlot& slot);  // as the machine keeps it; null: not known
  // A constant input as `make` packs it (in the machine's type), made once.
  Result<std::shared_ptr<std::byte>> packed(size_t i, std::string_view form, FunctionRef<Result<Tensor>()> make) {
    return packed(*node_.inputs[i], form, make);
  }
  Result<std::shared_ptr<std::byte>> packed(DeviceSlot& slot, std::string_view form,
                                            FunctionRef<Result<Tensor>()> make);

  // Numbers that a kernel reads beside its operands (f32 or i32): on the device, made once.
  Result<const void*> table(const Tensor& numbers);

  // Output i: contents arbitrary.
  Result<DeviceTensor> make(size_t i, DType declared, const Shape& shape, bool channels_last = false);
  void set(size_t i, DeviceTensor tensor) { outputs_[i] = std::move(tensor); }
  void set_host(size_t i, Tensor tensor) { host_[i] = std::move(tensor); }
  Result<std::shared_ptr<std::byte>> scratch(size_t bytes);

  // Epilogue of a product with [.., N] outputs `out`, from the node's own bias (input index, or -1) and what follows.
  // The row must keep `held` until it has enqueued the product.
  Result<Epilogue> epilogue(int bias, const DeviceTensor& out, std::vector<DeviceTensor>& held);
  bool is_followed() const {
    return node_.bias != nullptr || node_.residual != nullptr || node_.then.op != ElementOp::kCopy;
  }
  DeviceSlot* residual() const { return node_.residual; }
  DeviceSlot* follow_bias() const { return node_.bias; }
  const Element& then() const { return node_.then; }

  // Runs f with a context of the CPU's rows whose tensors have shapes but no contents, unless they are known: for what
  // reads attributes and shapes alone.
  Result<> with_shapes(FunctionRef<Result<>(RunContext&)> f);

  DeviceMachine& machine() { return machine_; }
  Stream& stream() { return machine_.stream; }
  Workers& workers() { return workers_; }
  Result<> product(ProductJob job) {
    job.tf32 = machine_.tf32 && job.dtype == DType::kF32;
    return machine_.choices.run(machine_.device, stream(), job, !machine_.capturing);
  }
  uint32_t mark() const { return node_.mark; }

  // Of inputs that lay on the host: bytes copied to the device, and how long that took.
  int64_t bytes_in() const { return bytes_in_; }
  double seconds_in() const { return seconds_in_; }

  std::vector<DeviceTensor>& made() { return outputs_; }
  std::vector<Tensor>& made_on_host() { return host_; }

 private:
  Result<std::shared_ptr<std::byte>> kept_pack(DeviceSlot& slot, std::string_view form,
                                               FunctionRef<Result<Tensor>()> make);

  DeviceMachine& machine_;
  const Node& node_;
  Workers& workers_;
  std::vector<DeviceTensor> outputs_;
  std::vector<Tensor> host_;
  std::vector<std::shared_ptr<std::byte>> scratch_;
  int64_t bytes_in_ = 0;
  double seconds_in_ = 0;
};

struct DeviceOp {
  std::string_view domain, name;
  // False: not for this node; nothing was made, and the CPU runs it.
  Result<bool> (*run)(DeviceContext&) = nullptr;
  bool is_product = false;  // can do what follows to its results
};

// The row of an op; null: there is none.
const DeviceOp* find_device_op(std::string_view domain, std::string_view name);

// The groups, a file each.
std::span<const DeviceOp> device_element_ops();    // elements.cc
std::span<const DeviceOp> device_product_ops();    // products.cc
std::span<const DeviceOp> device_attention_ops();  // attention.cc
std::span<const DeviceOp> device_layout_ops();     // layout.cc
std::span<const DeviceOp> device_row_ops();        // rows.cc
std::span<const DeviceOp> device_image_ops();      // image.cc
std::span<const DeviceOp> device_channel_ops();    // channels.cc
std::span<const DeviceOp> device_select_ops();     // select.cc

// The element that an op of one input is, where it is one: "Relu", "Sigmoid" ... of this domain; nullopt: it is none.
std::optional<Element> element_of(std::string_view domain, std::string_view name, const Attributes& attributes,
                                  int64_t version);

// A constant as the machine keeps it: finite numbers beyond the range of f16 or bf16 become its largest.
Result<Tensor> narrowed_to(const Tensor& tensor, DType kept, Workers& workers);

// True if kernels move elements of the type.
bool can_copy(DType dtype);

// A window of one or two axes as kernels take it; nullopt: there are more, or they are too long.
Result<std::optional<Geometry>> geometry_of(const Window& window, int64_t N, int64_t C);

// A constant input [K, N] packed as rows [N, K] on the device; null: it is none.
Result<std::shared_ptr<std::byte>> constant_rows(DeviceContext& c, size_t input, int64_t K, int64_t N);

// Fills dims and strides of a job over `shape` (merging dims that run on) for tensors that broadcast to it.
bool fill_elements(ElementsJob& job, const Shape& shape, std::span<const DeviceTensor* const> inputs,
                   const DeviceTensor& out);

}  // namespace bolide
