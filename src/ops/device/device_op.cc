#include "ops/device/device_op.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>

#include "ops/cast.h"

namespace bolide {
namespace {

constexpr size_t kGrain = 512;

size_t rounded(size_t bytes) { return std::max(kGrain, (bytes + kGrain - 1) / kGrain * kGrain); }

// Two sums of 64 bits over the bytes.
void mix(uint64_t& low, uint64_t& high, const std::byte* data, size_t bytes) {
  uint64_t a = low ^ bytes, b = high + bytes;
  size_t i = 0;
  for (; i + 8 <= bytes; i += 8) {
    uint64_t word;
    std::memcpy(&word, data + i, 8);
    a = (a ^ word) * 0x9e3779b97f4a7c15u;
    a ^= a >> 32;
    b = (b + word) * 0xc2b2ae3d27d4eb4fu;
    b = b << 31 | b >> 33;
  }
  uint64_t word = 0;
  std::memcpy(&word, data + i, bytes - i);
  low = (a ^ word) * 0xff51afd7ed558ccdu, high = (b + word) * 0xc4ceb9fe1a85ec53u;
  low ^= low >> 29, high ^= high >> 31;
}

// A finite number, brought into [-most, most].
float within(float x, float most) {
  constexpr float kLargest = std::numeric_limits<float>::max();
  return x > most && x <= kLargest ? most : x < -most && x >= -kLargest ? -most : x;
}

Strides last_strides(const Shape& shape) {
  Shape turned = shape;
  for (int d = 1; d + 1 < shape.rank; ++d) turned[d] = shape[d + 1];
  turned[-1] = shape[1];
  const Strides own = strides_of(turned);
  Strides strides{};
  strides[0] = own[0], strides[1] = 1;
  for (int d = 2; d < shape.rank; ++d) strides[static_cast<size_t>(d)] = own[static_cast<size_t>(d - 1)];
  return strides;
}

// True if channels first and last are two orders.
bool has_two_orders(const Shape& shape) {
  return shape.rank > 2 && shape[1] > 1 && shape[0] != 0 && shape.elements() > shape[0] * shape[1];
}

}  // namespace

Result<Tensor> narrowed_to(const Tensor& tensor, DType kept, Workers& workers) {
  if (tensor.dtype() == kept) return tensor;
  if (tensor.dtype() != DType::kF32 || (kept != DType::kF16 && kept != DType::kBF16))
    return cast(tensor, kept, heap_pool());
  BOLIDE_TRY(Tensor to, Tensor::make(kept, tensor.shape()));
  const auto from = tensor.as<float>();
  const auto out = to.mutate<uint16_t>();
  constexpr size_t kPart = 1 << 16;
  workers.run(static_cast<int64_t>((out.size() + kPart - 1) / kPart), [&](int64_t part, int) {
    const size_t begin = static_cast<size_t>(part) * kPart, end = std::min(out.size(), begin + kPart);
    if (kept == DType::kF16)
      for (size_t i = begin; i < end; ++i) out[i] = f32_to_f16(within(from[i], 65504.0f));
    else
      for (size_t i = begin; i < end; ++i) out[i] = f32_to_bf16(within(from[i], 0x1.fep127f));
  });
  return to;
}

bool can_copy(DType dtype) {
  switch (dtype) {
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
    case DType::kI64:
    case DType::kI32:
    case DType::kI16:
    case DType::kI8:
    case DType::kU32:
    case DType::kU16:
    case DType::kU8:
    case DType::kBool: return true;
    default: return false;
  }
}

Strides DeviceTensor::strides() const { return channels_last ? last_strides(shape) : strides_of(shape); }

Result<std::shared_ptr<std::byte>> DevicePool::take(size_t bytes) {
  const size_t wanted = rounded(bytes);
  State& state = *state_;
  const std::lock_guard lock(state.mutex);
  std::byte* data = nullptr;
  size_t size = wanted;
  if (const auto found = state.free.lower_bound(wanted);
      found != state.free.end() && found->first <= wanted + wanted / 4 + kGrain) {
    size = found->first, data = found->second;
    state.free.erase(found);
  } else {
    BOLIDE_TRY(Buffer block, state.device.allocate(wanted, Memory::kDevice));
    data = block.data();
    state.blocks.push_back(std::move(block));
    state.bytes += wanted;
  }
  return std::shared_ptr<std::byte>(data, [owner = state_, size](std::byte* p) {
    const std::lock_guard kept(owner->mutex);
    owner->free.emplace(size, p);
  });
}

size_t DevicePool::bytes() const {
  const std::lock_guard lock(state_->mutex);
  return state_->bytes;
}

size_t DeviceConstants::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

Result<std::shared_ptr<std::byte>> DeviceConstants::get(const Tensor& of, std::string_view form,
                                                        FunctionRef<Result<Tensor>()> make, Stream& stream) {
  Key key{static_cast<uint64_t>(of.dtype()), static_cast<uint64_t>(of.rank()), std::string(form)};
  mix(key.low, key.high, reinterpret_cast<const std::byte*>(of.shape().dims.data()),
      sizeof(int64_t) * static_cast<size_t>(of.rank()));
  mix(key.low, key.high, of.data(), of.bytes());
  const std::lock_guard lock(mutex_);
  if (const auto found = known_.find(key); found != known_.end()) return found->second;
  BOLIDE_TRY(const Tensor made, make());
  BOLIDE_TRY(Buffer buffer, device_.allocate(std::max<size_t>(made.bytes(), 16), Memory::kDevice));
  BOLIDE_TRY(copy_bytes(stream, {buffer.data(), made.bytes()}, {made.data(), made.bytes()}));
  BOLIDE_TRY(stream.synchronize());  // `made` goes
  bytes_ += buffer.size();
  std::byte* const data = buffer.data();
  std::shared_ptr<std::byte> shared(data, [kept = std::make_shared<Buffer>(std::move(buffer))](std::byte*) {});
  known_.emplace(std::move(key), shared);
  return shared;
}

Result<DeviceTensor> DeviceMachine::make(DType dtype, DType declared, const Shape& shape, bool channels_last) {
  BOLIDE_TRY(auto memory, pool.take(static_cast<size_t>(shape.elements()) * element_bytes(dtype)));
  return DeviceTensor{std::move(memory), dtype, declared, shape, channels_last && has_two_orders(shape)};
}

Result<DeviceTensor> DeviceMachine::converted(const DeviceTensor& tensor, DType dtype, bool channels_last) {
  channels_last = channels_last && has_two_orders(tensor.shape);
  if (tensor.dtype == dtype && tensor.channels_last == channels_last) return tensor;
  BOLIDE_TRY(DeviceTensor to, make(dtype, tensor.declared, tensor.shape, channels_last));
  const Shape& shape = tensor.shape;
  if (tensor.channels_last != channels_last && is_float(dtype)) {
    int64_t plane = 1;
    for (int d = 2; d < shape.rank; ++d) plane *= shape[d];
    TurnJob job{.in = tensor.data(), .out = to.data(), .in_dtype = tensor.dtype, .out_dtype = dtype, .batch = shape[0]};
    job.rows = channels_last ? shape[1] : plane, job.columns = channels_last ? plane : shape[1];
    job.padded = job.rows;
    BOLIDE_TRY(launch_turn(stream, job));
    return to;
  }
  ElementsJob job;
  const DeviceTensor* from = &tensor;
  if (!fill_elements(job, shape, {&from, 1}, to))
    return error(Code::kUnsupported, fmt::format("a tensor {} on a GPU", to_string(shape)));
  BOLIDE_TRY(launch_elements(stream, job));
  return to;
}

DeviceContext::DeviceContext(DeviceMachine& machine, const Node& node, Workers& workers)
    : machine_(machine), node_(node), workers_(workers), outputs_(node.outputs), host_(node.outputs) {}

bool DeviceContext::is_half_or_single(size_t i) const {
  const DType type = dtype(i);
  return type == DType::kF32 || type == DType::kF16 || type == DType::kBF16;
}

const Tensor* DeviceContext::known(size_t i) const {
  return has(i) && node_.inputs[i]->on_host && node_.inputs[i]->is_known ? node_.inputs[i]->host.tensor() : nullptr;
}

std::optional<std::vector<int64_t>> DeviceContext::integers(size_t i, std::vector<int64_t> otherwise) const {
  if (!has(i)) return otherwise;
  const Tensor* tensor = known(i);
  if (tensor == nullptr) return std::nullopt;
  std::vector<int64_t> values;
  if (tensor->dtype() == DType::kI64)
    for (const int64_t value : tensor->as<int64_t>()) values.push_back(value);
  else if (tensor->dtype() == DType::kI32)
    for (const int32_t value : tensor->as<int32_t>()) values.push_back(value);
  else
    return std::nullopt;
  return values;
}

Result<DeviceTensor> DeviceContext::raw(size_t i) {
  DeviceSlot& slot = *node_.inputs[i];
  return slot.device ? slot.device : on_device(slot, std::nullopt);
}

Result<DeviceTensor> DeviceContext::on_device(DeviceSlot& slot, std::optional<bool> channels_last) {
  const DType kept = machine_.kept(slot.dtype);
  if (!slot.device) {
    const Tensor* tensor = slot.on_host ? slot.host.tensor() : nullptr;
    if (tensor == nullptr || tensor->is_string()) return error(Code::kInternal, "an input is not there");
    if (slot.is_known) {
      const auto narrowed = [&]() -> Result<Tensor> { return narrowed_to(*tensor, kept, workers_); };
      BOLIDE_TRY(auto memory, machine_.constants.get(*tensor, to_string(kept), narrowed, stream()));
      slot.device = {std::move(memory), kept, slot.dtype, slot.shape, false};
    } else {
      BOLIDE_TRY(slot.device, machine_.make(slot.dtype, slot.dtype, slot.shape, false));
      BOLIDE_TRY(stream().synchronize());  // what runs before is no part of the copy's time
      const auto start = std::chrono::steady_clock::now();
      BOLIDE_TRY(copy_bytes(stream(), {slot.device.memory.get(), tensor->bytes()}, {tensor->data(), tensor->bytes()}));
      BOLIDE_TRY(stream().synchronize());
      bytes_in_ += static_cast<int64_t>(tensor->bytes());
      seconds_in_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    }
  }
  const bool wanted = channels_last.value_or(slot.device.channels_last) && has_two_orders(slot.shape);
  if (slot.device.dtype == kept && slot.device.channels_last == wanted) return slot.device;
  BOLIDE_TRY(DeviceTensor turned, machine_.converted(slot.device, kept, wanted));
  // Later readers are likely to want the same.
  slot.device = turned;
  return turned;
}

Result<const float*> DeviceContext::floats(DeviceSlot& slot) {
  if (slot.is_known && slot.on_host) {
    const auto wide = [&]() -> Result<Tensor> { return cast(*slot.host.tensor(), DType::kF32, heap_pool()); };
    BOLIDE_TRY(const auto memory, kept_pack(slot, "f32", wide));
    return reinterpret_cast<const float*>(memory.get());
  }
  BOLIDE_TRY(const DeviceTensor there, on_device(slot, false));
  BOLIDE_TRY(const DeviceTensor wide, machine_.converted(there, DType::kF32, false));
  scratch_.push_back(wide.memory);
  return static_cast<const float*>(wide.data());
}

Result<std::shared_ptr<std::byte>> DeviceContext::kept_pack(DeviceSlot& slot, std::string_view form,
                                                            FunctionRef<Result<Tensor>()> make) {
  for (const auto& [known, memory] : slot.packs)
    if (known == form) return memory;
  BOLIDE_TRY(auto memory, machine_.constants.get(*slot.host.tensor(), form, make, stream()));
  slot.packs.emplace_back(form, memory);
  return memory;
}

Result<std::shared_ptr<std::byte>> DeviceContext::packed(DeviceSlot& slot, std::string_view form,
                                                         FunctionRef<Result<Tensor>()> make) {
  const DType kept = machine_.kept(slot.dtype);
  const auto narrowed = [&]() -> Result<Tensor> {
    BOLIDE_TRY(const Tensor tensor, make());
    return narrowed_to(tensor, kept, workers_);
  };
  return kept_pack(slot, fmt::format("{} {}", form, to_string(kept)), narrowed);
}

Result<const void*> DeviceContext::table(const Tensor& numbers) {
  BOLIDE_TRY(const auto memory,
             machine_.constants.get(numbers, "table", [&]() -> Result<Tensor> { return numbers; }, stream()));
  return static_cast<const void*>(memory.get());
}

Result<DeviceTensor> DeviceContext::make(size_t i, DType declared, const Shape& shape, bool channels_last) {
  BOLIDE_TRY(DeviceTensor tensor, machine_.make(machine_.kept(declared), declared, shape, channels_last));
  if (i < outputs_.size()) outputs_[i] = tensor;
  return tensor;
}

Result<std::shared_ptr<std::byte>> DeviceContext::scratch(size_t bytes) {
  BOLIDE_TRY(auto memory, machine_.pool.take(bytes));
  scratch_.push_back(memory);
  return memory;
}

Result<Epilogue> DeviceContext::epilogue(int bias, const DeviceTensor& out, std::vector<DeviceTensor>& held) {
  Epilogue e;
  DeviceSlot* const added = node_.bias != nullptr                         ? node_.bias
                            : bias >= 0 && has(static_cast<size_t>(bias)) ? node_.inputs[static_cast<size_t>(bias)]
                                                                          : nullptr;
  if (added != nullptr) {
    BOLIDE_TRY(e.bias, floats(*added));
    BOLIDE_TRY(e.bias_narrow, narrow_bias(*added));
  }
  if (node_.residual != nullptr) {
    BOLIDE_TRY(DeviceTensor summand, on_device(*node_.residual, out.channels_last));
    e.residual = summand.data();
    held.push_back(std::move(summand));
  }
  e.then = node_.then;
  return e;
}

Result<const void*> DeviceContext::narrow_bias(DeviceSlot& slot) {
  if (!slot.is_known || !slot.on_host) return nullptr;
  BOLIDE_TRY(const auto memory, packed(slot, "bias", [&]() -> Result<Tensor> { return *slot.host.tensor(); }));
  return static_cast<const void*>(memory.get());
}

Result<> DeviceContext::with_shapes(FunctionRef<Result<>(RunContext&)> f) {
  std::vector<AnyValue> values;
  std::vector<const AnyValue*> in;
  values.reserve(node_.inputs.size());
  for (size_t i = 0; i < node_.inputs.size(); ++i) {
    if (!has(i)) {
      in.push_back(nullptr);
      continue;
    }
    const Tensor* content = known(i);
    values.emplace_back(content != nullptr ? *content : Tensor::over({}, nullptr, dtype(i), shape(i)));
    in.push_back(&values.back());
  }
  std::vector<AnyValue> out(node_.outputs);
  const auto no_body = [](std::string_view, const std::vector<AnyValue>&) -> Result<std::vector<AnyValue>> {
    return error(Code::kNotFound, "has no graph");
  };
  RunContext context(node_.attributes, node_.version, in, out, workers_, heap_pool(), no_body);
  BOLIDE_TRY(f(context));
  for (size_t i = 0; i < out.size(); ++i)
    if (const Tensor* tensor = out[i].tensor()) host_[i] = *tensor;
  return {};
}

bool fill_elements(ElementsJob& job, const Shape& shape, std::span<const DeviceTensor* const> inputs,
                   const DeviceTensor& out) {
  if (shape.elements() >= int64_t{1} << 31) return false;
  const auto read_as = [&](const DeviceTensor& tensor) {
    Strides strides{}, own = tensor.strides();
    const int more = shape.rank - tensor.shape.rank;
    for (int d = 0; d < tensor.shape.rank; ++d)
      strides[static_cast<size_t>(d + more)] =
          tensor.shape[d] == 1 && shape[d + more] != 1 ? 0 : own[static_cast<size_t>(d)];
    return strides;
  };
  std::array<Strides, 4> strides{};
  job.inputs = static_cast<int>(inputs.size());
  for (size_t k = 0; k < inputs.size(); ++k) {
    strides[k] = read_as(*inputs[k]);
    job.in[k].data = inputs[k]->data(), job.in[k].dtype = inputs[k]->dtype;
  }
  strides[3] = read_as(out);
  job.out.data = out.data(), job.out.dtype = out.dtype;
  // Axes in the order in which they lie in the output, the last fastest; those of one element are left out.
  std::vector<int> axes;
  for (int d = 0; d < shape.rank; ++d)
    if (shape[d] != 1) axes.push_back(d);
  std::stable_sort(axes.begin(), axes.end(), [&](int a, int b) {
    return strides[3][static_cast<size_t>(a)] > strides[3][static_cast<size_t>(b)];
  });
  job.rank = 0;
  for (const int axis : axes) {
    const auto d = static_cast<size_t>(axis);
    bool runs_on = job.rank > 0;
    const auto each = [&](auto&& f) {
      for (size_t k = 0; k < 4; ++k)
        if (k == 3 || k < inputs.size()) f(k == 3 ? job.out : job.in[k], strides[k][d]);
    };
    const auto before = static_cast<size_t>(job.rank - 1);
    if (runs_on)
      each([&](const GeneralView& view, int64_t stride) {
        runs_on = runs_on && view.strides[before] == stride * shape[axis];
      });
    if (runs_on) {
      job.dims[before] *= shape[axis];
      each([&](GeneralView& view, int64_t stride) { view.strides[before] = stride; });
    } else {
      const auto at = static_cast<size_t>(job.rank++);
      job.dims[at] = shape[axis];
      each([&](GeneralView& view, int64_t stride) { view.strides[at] = stride; });
    }
  }
  if (job.rank == 0) {
    job.rank = 1, job.dims[0] = 1;
    for (GeneralView* view : {&job.in[0], &job.in[1], &job.in[2], &job.out}) view->strides[0] = 1;
  }
  const auto is_number = [](DType dtype) {
    return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
  };
  job.floats = is_number(out.dtype);
  for (const DeviceTensor* tensor : inputs) job.floats = job.floats || is_number(tensor->dtype);
  return true;
}

const DeviceOp* find_device_op(std::string_view domain, std::string_view name) {
  for (const auto group : {device_element_ops(), device_product_ops(), device_attention_ops(), device_layout_ops(),
                           device_row_ops(), device_image_ops(), device_channel_ops(), device_select_ops()})
    for (const DeviceOp& row : group)
      if (row.domain == domain && row.name == name) return &row;
  return nullptr;
}

}  // namespace bolide
