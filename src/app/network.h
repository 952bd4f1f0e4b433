// NetworkModel: an ONNX model that is ready to run; NetworkSession: what one thread runs it with.
//
// Thread rules: a NetworkModel is immutable, any number of sessions share it; a session runs on one thread at a time.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "app/network_buckets.h"
#include "device/device.h"
#include "onnx/import.h"
#include "passes/general/general.h"
#include "plan/device_network.h"
#include "plan/device_shared.h"
#include "plan/interpreter.h"
#include "tensor/caching_pool.h"

namespace bolide {

struct NetworkSettings {
  int threads = 0;              // of a session; 0: the cores this cgroup may use
  bool prepare = true;          // false: every node runs its reference kernel
  DType compute = DType::kF32;  // bf16: products of f32 may round what they multiply to it; on a GPU f16 or bf16:
                                // f32 are kept as that
  bool tf32 = false;            // on a GPU, f32: products may round what they multiply to tf32 (10 bits)
  DeviceKind device = DeviceKind::kCpu;
  CudaOptions cuda;                    // where device is a GPU
  std::filesystem::path tuning_cache;  // what was measured on a GPU; empty: a file in the user's cache folder
  std::optional<Isa> isa;              // no kernels above this level; empty: the best there is
  bool trust_names = true;             // passes take dims of one name for equal; inputs of which that is untrue are
                                       // answered by the model opened once more
  std::set<std::string> skip_passes;   // general_passes() that are left out; "all": every one
  size_t memory_limit = 0;             // bytes of values of a session; 0: what the system has
  std::span<const OpDef> added;        // ops of the program's own (open_onnx), which must outlive the model
};

struct ModelConfigFlags;  // app/model_flags.h

// What device, cuda_libs, threads, isa, dtype (auto, f32, tf32, bf16 or f16), skip_passes, tuning_cache and
// memory_limit of the flags mean for a network. Errors name the flag.
Result<NetworkSettings> to_network_settings(const ModelConfigFlags& flags);

// True if the path is for NetworkModel, by its name: "x.onnx".
bool is_network(const std::filesystem::path& path);

// Runs the passes on a model's graph, with what it declares of its inputs. An unknown name in `skip` is an error that
// lists the known ones.
Result<std::vector<PassRecord>> run_passes(OnnxProgram& program, Workers& workers, const std::set<std::string>& skip,
                                           const FunctionRef<void(const PassRecord&, const Graph&)>* after = nullptr,
                                           bool trust_names = true);

// What is declared of the inputs, as passes take it. Dims of one name are equal where names are trusted.
std::vector<Facts> declared_facts(const std::vector<OnnxProgram::Port>& inputs, bool trust_names = true);

class NetworkModel {
 public:
  // Errors are for the user: file, node, what is wrong.
  static Result<std::shared_ptr<const NetworkModel>> open(const std::filesystem::path& path,
                                                          const NetworkSettings& options);

  const std::filesystem::path& path() const { return path_; }
  const OnnxProgram& program() const { return program_; }
  const std::vector<OnnxProgram::Port>& inputs() const { return program_.inputs; }
  const std::vector<OnnxProgram::Port>& outputs() const { return program_.outputs; }
  const Interpreter& interpreter() const { return *interpreter_; }
  double load_ms() const { return load_ms_; }
  const NetworkSettings& settings() const { return settings_; }
  Device* gpu() const { return gpu_.get(); }                               // null: the network runs on the CPU
  const std::shared_ptr<DeviceShared>& on_gpu() const { return on_gpu_; }  // of all sessions; null without a GPU
  const std::vector<PassRecord>& passes() const { return passes_; }        // in the order in which they ran
  // The input (by place) that output `i` is a longer one of, if it may be made in its memory: an attention's cache that
  // nothing else reads. nullopt: there is none.
  std::optional<size_t> grown_input(size_t i) const;
  // The same model for inputs whose dims of one name are not equal. It is opened when it is first asked for, from any
  // thread; this one owns it.
  Result<const NetworkModel*> without_names() const;

 private:
  NetworkModel() = default;
  Result<> read();  // all that open does, of path_ and settings_

  std::filesystem::path path_;
  std::shared_ptr<Device> gpu_;
  std::shared_ptr<DeviceShared> on_gpu_;
  OnnxProgram program_;                       // the interpreter points into it
  std::unique_ptr<Interpreter> interpreter_;  // made last
  std::vector<PassRecord> passes_;
  double load_ms_ = 0;
  NetworkSettings settings_;
  mutable std::mutex without_names_mutex_;
  mutable std::shared_ptr<const NetworkModel> without_names_;
};

// Shapes that an input is meant to have (a profile): what lies beyond is refused.
struct ShapeRange {
  std::string input;
  std::vector<int64_t> min, opt, max;
};
// "ids=1x1,1x128,8x384"; the name may be left out for a model of one input.
Result<ShapeRange> parse_shape_range(std::string_view text, std::span<const OnnxProgram::Port> inputs);

class NetworkSession {
 public:
  // threads: 0: the cores this cgroup may use.
  static Result<NetworkSession> make(std::shared_ptr<const NetworkModel> model, int threads,
                                     std::optional<Isa> isa = std::nullopt);
  // A model with the one session that uses it.
  static Result<NetworkSession> open(const std::filesystem::path& path, const NetworkSettings& options);

  const std::shared_ptr<const NetworkModel>& shared_model() const { return model_; }
  const std::vector<OnnxProgram::Port>& inputs() const { return model_->inputs(); }
  const std::vector<OnnxProgram::Port>& outputs() const { return model_->outputs(); }
  const DeviceInfo& device() const { return model_->gpu() != nullptr ? model_->gpu()->info() : device_->info(); }
  // What the last run used on a GPU; null: it ran on the CPU alone.
  const DeviceNetwork* on_gpu() const { return last_on_gpu_; }
  CachingPool& pool() { return pool_; }
  double load_ms() const { return model_->load_ms(); }
  void set_ranges(std::vector<ShapeRange> ranges) { ranges_ = std::move(ranges); }  // from parse_shape_range

  void set_buckets(std::vector<DimBuckets> buckets) { buckets_ = std::move(buckets); }  // from parse_dim_buckets

  // Values in the order of inputs(). They are checked against what the model declares: kInvalid names the input.
  // Outputs in the order of outputs(); `memories` as Interpreter::run takes them.
  // `arrays`: inputs and outputs on the GPU (DeviceNetwork::run); kUnsupported where the network cannot run there.
  Result<std::vector<AnyValue>> run(std::vector<AnyValue> inputs, const GeneralObserver* observer = nullptr,
                                    std::span<const OutputMemory> memories = {}, DeviceArrays* arrays = nullptr);
  // Of a network on a GPU. What is there must not outlive the model.
  Result<DeviceTensor> to_device(const Tensor& tensor);
  Result<Tensor> to_host(const DeviceTensor& tensor);

 private:
  NetworkSession() = default;
  // run, whose errors do not name the model's file yet.
  Result<std::vector<AnyValue>> run_checked(std::vector<AnyValue> inputs, const GeneralObserver* observer,
                                            std::span<const OutputMemory> memories, DeviceArrays* arrays);
  Result<DeviceNetwork*> network_on_gpu(const NetworkModel& model);

  std::shared_ptr<const NetworkModel> model_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
  CachingPool pool_;
  std::map<const NetworkModel*, std::unique_ptr<DeviceNetwork>> on_gpu_;
  const DeviceNetwork* last_on_gpu_ = nullptr;
  std::vector<ShapeRange> ranges_;
  std::vector<DimBuckets> buckets_;
};

// "f32[N,3,224,224]", "sequence of i64[?]".
std::string to_string(const OnnxType& type);

// "1x3x224x224".
Result<Shape> parse_shape(std::string_view text);

// A value for an input, as people give it:
//   FILE.npy, FILE.npz (the array of the input's name) or FILE.npz:ARRAY, FILE.json, [[1, 2], [3, 4]] or a bare number
//   or text, random or random:1x3x224x224 (seeded; symbolic dims that are not given are 1)
//   FILE.jpg, .png or .bmp, with options (image_input.h)
// `note`: what was done to a photo, else untouched.
Result<AnyValue> network_input(const OnnxProgram::Port& port, std::string_view text, uint64_t seed,
                               std::string* note = nullptr);

}  // namespace bolide
