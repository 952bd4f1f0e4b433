// Bolide's C++ API for networks (ONNX): named arrays in, named arrays out.
//
//   auto network = bolide::Network::open("model.onnx");
//   if (!network) return fail(network.status().message);
//   std::vector<float> pixels(3 * 224 * 224);
//   auto outputs = network->run({{"image", bolide::Array::view<float>(pixels, {1, 3, 224, 224})}});
//   if (!outputs) return fail(outputs.status().message);
//   std::span<const float> scores = (*outputs)[0].array.as<float>();
//
// Errors: as in bolide.h; nothing is thrown.
// Threads: a Network may be used by any number of threads at once; a Session by one at a time. Arrays are values whose
// copies share their elements.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "bolide/bolide.h"

namespace bolide {

// What an array's elements are. Types of less than a byte have a byte for each element here.
enum class ElementType : uint8_t {
  kNone,  // no array, or a type that the model does not state
  kF64,
  kF32,
  kF16,   // bits, as uint16_t
  kBF16,  // bits, as uint16_t
  kF8E4M3,
  kF8E5M2,
  kF8E4M3FNUZ,
  kF8E5M2FNUZ,
  kF8E8M0,
  kF4E2M1,
  kI64,
  kI32,
  kI16,
  kI8,
  kI4,
  kI2,
  kU64,
  kU32,
  kU16,
  kU8,
  kU4,
  kU2,
  kBool,
  kString,  // std::string
};

std::string_view to_string(ElementType type);  // "f32", "bf16", "i64", "string"
size_t element_bytes(ElementType type);        // 0 for kNone and kString

// The element type of float, double, bool, std::string and the integers; kNone for others.
template <class T>
constexpr ElementType element_type_of() {
  using U = std::remove_cv_t<T>;
  if constexpr (std::is_same_v<U, double>) return ElementType::kF64;
  if constexpr (std::is_same_v<U, float>) return ElementType::kF32;
  if constexpr (std::is_same_v<U, bool>) return ElementType::kBool;
  if constexpr (std::is_same_v<U, std::string>) return ElementType::kString;
  if constexpr (std::is_integral_v<U> && std::is_signed_v<U>)
    return sizeof(U) == 8   ? ElementType::kI64
           : sizeof(U) == 4 ? ElementType::kI32
           : sizeof(U) == 2 ? ElementType::kI16
                            : ElementType::kI8;
  if constexpr (std::is_integral_v<U> && std::is_unsigned_v<U>)
    return sizeof(U) == 8   ? ElementType::kU64
           : sizeof(U) == 4 ? ElementType::kU32
           : sizeof(U) == 2 ? ElementType::kU16
                            : ElementType::kU8;
  return ElementType::kNone;
}

// A contiguous, row-major array in host memory, or on a GPU: those come from Session::to_device, and from run for
// outputs that are left there.
class Array {
 public:
  Array() = default;  // none: type kNone

  // The caller's memory, not copied: it must be there, unchanged, as long as this array and its copies are. Outputs
  // never refer to it. Aligned to its elements, as many of them as `dims` mean: otherwise running with it is kInvalid.
  template <class T>
  static Array view(std::span<const T> elements, std::vector<int64_t> dims) {
    return view(element_type_of<T>(), std::move(dims), elements.data(), elements.size());
  }
  // The same of any type. If there is an `owner`, it is kept as long as anything may read the elements, and outputs may
  // share them.
  static Array view(ElementType type, std::vector<int64_t> dims, const void* data, size_t elements,
                    std::shared_ptr<const void> owner = nullptr);

  // The caller's memory for an output to be written to: Session::run gives it the dims. An output of fewer elements
  // leaves the rest alone, one of more is an error.
  template <class T>
  static Array memory(std::span<T> elements) {
    return memory(element_type_of<T>(), elements.data(), elements.size());
  }
  static Array memory(ElementType type, void* data, size_t elements, std::shared_ptr<void> owner = nullptr);

  // Among the memories of a run: the output stays on the network's GPU and comes back as an array there. Where the
  // network runs on the CPU, and for outputs that its CPU makes, one in host memory.
  static Array left_on_device();

  explicit operator bool() const { return type_ != ElementType::kNone; }
  ElementType type() const { return type_; }
  const std::vector<int64_t>& dims() const { return dims_; }
  size_t size() const { return size_; }             // elements
  const void* data() const { return data_; }        // of the GPU's memory where on_device()
  bool on_device() const { return is_on_device_; }  // Session::to_host copies it

  // The elements, which are in host memory. T's type is the array's, or it is an unsigned integer of as many bytes,
  // which sees the bits; another one ends the program.
  template <class T>
  std::span<const T> as() const {
    check_type(element_type_of<T>(), sizeof(T));
    return {static_cast<const T*>(data_), size_};
  }
  // The same to write: of memory, and of what OperatorCall::output made.
  template <class T>
  std::span<T> mutate() {
    check_type(element_type_of<T>(), sizeof(T));
    check_writable();
    return {static_cast<T*>(const_cast<void*>(data_)), size_};
  }

 private:
  friend struct ArrayAccess;
  void check_type(ElementType asked, size_t bytes) const;
  void check_writable() const;

  std::shared_ptr<const void> owner_;  // null: the caller
  const void* data_ = nullptr;
  std::vector<int64_t> dims_;
  size_t size_ = 0;
  ElementType type_ = ElementType::kNone;
  bool writable_ = false, is_on_device_ = false, is_left_ = false;
};

struct NamedArray {
  std::string name;
  Array array;
};
using NamedArrays = std::vector<NamedArray>;

// An input or output as the model declares it.
struct Port {
  struct Dim {
    int64_t size = -1;   // -1: any
    std::string symbol;  // a name for "any": dims of one name agree
  };
  std::string name;
  ElementType type = ElementType::kNone;  // kNone: not a tensor (a sequence, an optional), or not stated
  std::optional<std::vector<Dim>> dims;   // nullopt: any number of them
  std::string text;                       // for people: "f32[N,3,224,224]", "sequence of i64[?]"
};

// One execution of a node whose operator the program has added.
class OperatorCall {
 public:
  virtual ~OperatorCall() = default;

  virtual size_t inputs() const = 0;               // as the node lists them, absent ones too
  virtual const Array& input(size_t i) const = 0;  // none: absent, not there, or no tensor
  virtual size_t outputs() const = 0;
  // Output i, to be written through mutate: contents are arbitrary, texts empty. kInvalid: a dim is negative, or there
  // is no output i; kOutOfMemory: too large.
  virtual Expected<Array> output(size_t i, ElementType type, const std::vector<int64_t>& dims) = 0;

  // The node's attributes; nullopt: absent, or of another type.
  virtual std::optional<int64_t> integer(std::string_view name) const = 0;
  virtual std::optional<float> number(std::string_view name) const = 0;
  virtual std::optional<std::string> text(std::string_view name) const = 0;
  virtual std::optional<std::vector<int64_t>> integers(std::string_view name) const = 0;
  virtual std::optional<std::vector<float>> numbers(std::string_view name) const = 0;
};

// An operator of the program's own. It goes before operators and functions of the same domain and name that Bolide or
// the model has.
struct UserOperator {
  std::string domain;  // "" is ai.onnx
  std::string name;
  int64_t since = 1;  // the first version of the domain's operator set that it is for
  // Checks its inputs, makes its outputs. Sessions on several threads call it at once. Must not throw.
  std::function<Status(OperatorCall&)> run;
};

struct NetworkOptions {
  // "cpu"; "cuda" or "cuda:N": a GPU, kUnavailable where there is none that can be used; "auto": the first GPU, or else
  // the CPU. Operators that a GPU has no kernels for run on the CPU.
  std::string device = "cpu";
  // What products of f32 are computed in: "auto" and "f32": f32. "bf16"; on a GPU also "f16" (both keep all values of
  // f32 so between operators there) and "tf32" (f32 whose products round what they multiply to 10 bits).
  std::string dtype = "auto";
  std::filesystem::path cuda_libraries;  // where cuBLASLt is looked for first; empty: nowhere special
  // Keeps which kernels were fastest on a GPU, so that the next process need not measure. Empty: a file in the user's
  // cache folder.
  std::filesystem::path tuning_cache;
  int threads = 0;  // of each session, unless it says otherwise; 0: the cores this process's control group may use
  std::vector<UserOperator> operators;
  // Bytes that values between nodes may take in each session; what is larger is refused (kOutOfMemory). 0: what the
  // system and its control groups can give.
  size_t memory_limit = 0;
};

// What one thread runs a network with: worker threads, and memory that is kept from run to run.
class Session {
 public:
  Session(Session&&) noexcept;
  Session& operator=(Session&&) noexcept;
  ~Session();

  // Inputs in any order, each of the network's once. Outputs in the order of Network::outputs(): those named in
  // `memories` lie in the caller's memory, the others in the session's, which an array keeps as long as it lives. The
  // memory of a decoder's present keys or values may be that of the past ones it is given, where GroupQueryAttention
  // makes one of the other and the past has room for all tokens: the new rows alone are written, in place. An
  // output that is a sequence gives "name.0", "name.1" ...; one that is an empty optional gives none.
  // kInvalid names the input or output and says what was expected; kNotFound: a name that the network does not have.
  // Whatever failed, the session can run again; memories' contents are arbitrary then.
  //
  // On a GPU, inputs may be arrays that are there already, of any session of networks on the same GPU: nothing is
  // copied through the host.
  Expected<NamedArrays> run(const NamedArrays& inputs, const NamedArrays& memories = {});

  // The array on the network's GPU; where the network runs on the CPU, the array itself. It keeps the network.
  Expected<Array> to_device(const Array& array);
  // The array in host memory, which may be the array itself.
  Expected<Array> to_host(const Array& array);

 private:
  friend class Network;
  struct Impl;
  explicit Session(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

// A network that is loaded and checked; copies are the same network.
class Network {
 public:
  // `path`: an .onnx file; its external data lie in its folder.
  static Expected<Network> open(const std::filesystem::path& path, const NetworkOptions& options = {});

  const std::vector<Port>& inputs() const;
  const std::vector<Port>& outputs() const;

  // `threads`: 0: as NetworkOptions says. A session keeps the network.
  Expected<Session> session(int threads = 0) const;
  // Session::run with a session that is free, or a new one.
  Expected<NamedArrays> run(const NamedArrays& inputs, const NamedArrays& memories = {}) const;

 private:
  friend class Session;
  struct Impl;
  explicit Network(std::shared_ptr<Impl> impl);

  std::shared_ptr<Impl> impl_;
};

}  // namespace bolide
