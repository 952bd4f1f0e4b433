#include "ops/microsoft_mask.h"

namespace bolide {

Result<> KeyMask::read_bias(const RunContext& c, size_t bias, const Shape& scores, KeyMask& to) {
  BOLIDE_TRY(const Tensor* given, c.tensor_if(bias));
  if (given == nullptr) return {};
  const Shape& shape = given->shape();
  if (shape.rank != 4 || (shape[0] != 1 && shape[0] != scores[0]) || (shape[1] != 1 && shape[1] != scores[1]) ||
      (shape[2] != 1 && shape[2] != scores[2]) || shape[3] < scores[3])
    return error(Code::kInvalid,
                 fmt::format("attention_bias is {}, the scores are {}", to_string(shape), to_string(scores)));
  BOLIDE_TRY(to.bias, widened<double>(c, *given));
  to.bias_row = shape[2] == 1 ? 0 : shape[3];
  to.bias_head = shape[1] == 1 ? 0 : shape[2] * shape[3];
  to.bias_batch = shape[0] == 1 ? 0 : shape[1] * shape[2] * shape[3];
  return {};
}

Result<KeyMask> KeyMask::read(const RunContext& c, size_t mask, size_t bias, const Shape& scores) {
  KeyMask to;
  BOLIDE_TRY(const float hidden, c.attributes().number("mask_filter_value", -10000.0f));
  to.hidden = static_cast<double>(hidden);
  BOLIDE_TRY(read_bias(c, bias, scores, to));
  BOLIDE_TRY(const Tensor* given, c.tensor_if(mask));
  if (given == nullptr) return to;
  const int64_t B = scores[0], S = scores[2], L = scores[3];
  const Shape& shape = given->shape();
  BOLIDE_TRY(auto values, c.integers(mask, {}, int64_t{1} << 40));
  if (shape == Shape{B}) {
    to.lengths = std::move(values);
  } else if (shape == Shape{B, L} || shape == Shape{B, S, L}) {
    to.keys = L, to.rows = shape.rank == 3 ? S : 1;
    to.shown.reserve(values.size());
    for (const int64_t value : values) to.shown.push_back(value > 0);
  } else {
    return error(Code::kUnsupported, fmt::format("a mask {} of scores {}: expected [{}], [{}, {}] or [{}, {}, {}]",
                                                 to_string(shape), to_string(scores), B, B, L, B, S, L));
  }
  return to;
}

template <class T>
void KeyMask::write(int64_t b, int64_t h, int64_t i, int64_t L, T* row) const {
  for (int64_t j = 0; j < L; ++j) {
    double value = bias ? bias.as<double>()[static_cast<size_t>(b * bias_batch + h * bias_head + i * bias_row + j)] : 0;
    const bool open = !lengths.empty()
                          ? j < lengths[static_cast<size_t>(b)]
                          : shown.empty() || shown[static_cast<size_t>((b * rows + (rows == 1 ? 0 : i)) * keys + j)];
    if (!open) value += hidden;
    row[j] = static_cast<T>(value);
  }
}
template void KeyMask::write<float>(int64_t, int64_t, int64_t, int64_t, float*) const;
template void KeyMask::write<double>(int64_t, int64_t, int64_t, int64_t, double*) const;

}  // namespace bolide
