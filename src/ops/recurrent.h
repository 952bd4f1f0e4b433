// What RNN, LSTM and GRU share: their attributes, inputs and activations.
#pragma once

#include <string>
#include <vector>

#include "ir/op_def.h"
#include "ops/dense.h"

namespace bolide {

struct Activation {
  enum class Kind : uint8_t {
    kRelu,
    kTanh,
    kSigmoid,
    kAffine,
    kLeakyRelu,
    kThresholdedRelu,
    kScaledTanh,
    kHardSigmoid,
    kElu,
    kSoftsign,
    kSoftplus,
  };
  Kind kind = Kind::kTanh;
  double alpha = 0, beta = 0;

  double operator()(double x) const;
};

// X [T, S, I] (layout 1: [S, T, I]), W [directions, gates * H, I], R [directions, gates * H, H].
struct Recurrence {
  int64_t T = 0, S = 0, I = 0, H = 0, directions = 1, gates = 1;
  bool batch_first = false, backward = false;  // backward: the only direction is
  double clip = 0;                             // 0: none
  std::vector<int64_t> lengths;                // of each sequence
  std::vector<Activation> activations;         // some for each direction

  // Checks the attributes and all inputs but X's elements; `functions`: the default activations of one direction.
  static Result<Recurrence> read(const RunContext& c, int64_t gates, const std::vector<std::string>& functions);
  double clipped(double x) const { return clip > 0 ? std::min(std::max(x, -clip), clip) : x; }
  // Element offset of [t, s, 0] of X, and of [t, direction, s, 0] of Y.
  int64_t x_row(int64_t t, int64_t s) const { return (batch_first ? s * T + t : t * S + s) * I; }
  int64_t y_row(int64_t t, int64_t d, int64_t s) const {
    return (batch_first ? (s * T + t) * directions + d : (t * directions + d) * S + s) * H;
  }
  // Of [direction, s, 0] of an initial or last state.
  int64_t state_row(int64_t d, int64_t s) const { return (batch_first ? s * directions + d : d * S + s) * H; }
  Shape y_shape() const;
  Shape state_shape() const;
};

// LSTM. `rounds_state`: what R multiplies is rounded to u8 first (round_to_u8), at every step.
Result<> run_lstm(RunContext& c, bool rounds_state);
// Values to the nearest that u8 codes over their range can say (DynamicQuantizeLinear).
void round_to_u8(std::span<float> values);

// One step of a cell for all sequences: from the products of the inputs [S, gates * H] (with no bias) and the states
// of before, the states h (and c) [S, H] of after. A sequence that has ended keeps its state.
template <class T>
struct Cell {
  int64_t direction = 0;
  const T* input = nullptr;          // [S, gates * H] X W^T
  std::vector<T>& h;                 // [S, H], in and out
  std::vector<T>& c;                 // [S, H] of an LSTM
  const std::vector<bool>& running;  // by sequence
};

// Runs `step` over time in both directions and writes Y, Y_h and (state_outputs 2) Y_c.
template <class T>
using StepOf = FunctionRef<void(Cell<T>& cell)>;
template <class T>
Result<> run_over_time(RunContext& c, const Recurrence& r, int state_outputs, StepOf<T> step);

}  // namespace bolide
