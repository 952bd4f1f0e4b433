// LSTM and GRU of f32 with the standard's own activations made ready: W and R packed, the inputs of all steps
// multiplied at once, a step's gates by row functions.
#include <algorithm>

#include "kernels/linear/packed_matrix.h"
#include "ops/prepared_rows.h"
#include "ops/recurrent.h"

namespace bolide {
namespace {

// Of one direction. R may come in two parts: a GRU's last gate may need the reset state.
struct Direction {
  std::unique_ptr<PackedMatrix> input, state, last;
  std::vector<float> bias;        // of the input: W's, and R's where they are added to it
  std::vector<float> state_bias;  // R's of the last gate of a GRU with linear_before_reset
};

class PreparedRecurrence final : public PreparedOp {
 public:
  PreparedRecurrence(const isa::RowFunctions& rows, std::vector<Direction> directions, bool lstm, bool before_reset,
                     bool rounds_state)
      : rows_(rows),
        directions_(std::move(directions)),
        lstm_(lstm),
        before_reset_(before_reset),
        rounds_state_(rounds_state) {}
  std::string_view kernel() const override { return directions_[0].input->kernel(); }
  size_t bytes() const override {
    size_t sum = 0;
    for (const Direction& d : directions_)
      sum += d.input->bytes() + d.state->bytes() + (d.last != nullptr ? d.last->bytes() : 0);
    return sum;
  }

  Result<bool> run(RunContext& c) const override {
    if (f32_at(c, 0) == nullptr) return false;
    const int64_t gates = lstm_ ? 4 : 3;
    auto read =
        lstm_ ? Recurrence::read(c, 4, {"Sigmoid", "Tanh", "Tanh"}) : Recurrence::read(c, 3, {"Sigmoid", "Tanh"});
    if (!read) return std::move(read).error();
    const Recurrence& r = *read;
    const auto ended = [&](int64_t length) { return length != r.T; };
    for (size_t i = 0; i < r.activations.size(); ++i) {
      const bool gate = i % (lstm_ ? 3 : 2) == 0;
      if (r.activations[i].kind != (gate ? Activation::Kind::kSigmoid : Activation::Kind::kTanh)) return false;
    }
    if (r.clip != 0 || r.directions != static_cast<int64_t>(directions_.size()) || r.S < 1 || r.T < 1 ||
        r.I != directions_[0].input->k() || gates * r.H != directions_[0].input->n() ||
        std::any_of(r.lengths.begin(), r.lengths.end(), ended) || (lstm_ && c.has(7)))
      return false;
    const Tensor* initial[] = {f32_at(c, 5), lstm_ ? f32_at(c, 6) : nullptr};
    if ((c.has(5) && initial[0] == nullptr) || (lstm_ && c.has(6) && initial[1] == nullptr)) return false;
    if (initial[1] != nullptr && initial[1]->shape() != r.state_shape()) return false;
    BOLIDE_TRY(Tensor * y, c.make(0, DType::kF32, r.y_shape()));
    Tensor* last[2] = {};
    for (size_t i = 0; i < (lstm_ ? 2 : 1); ++i) {
      BOLIDE_TRY(last[i], c.make(i + 1, DType::kF32, r.state_shape()));
    }
    Run run{c, r, gates * r.H, {}, {}, {}, {}};
    BOLIDE_TRY(run.input, make_wide<float>(c, {r.T * r.S, run.G}));
    BOLIDE_TRY(run.gates, make_wide<float>(c, {r.S, run.G}));
    BOLIDE_TRY(run.states, make_wide<float>(c, {3, r.S, r.H}));
    size_t bytes = 0;
    for (const Direction& d : directions_) {
      bytes = std::max({bytes, d.input->workspace(r.T * r.S, c.workers().threads()),
                        d.state->workspace(r.S, c.workers().threads())});
      if (d.last != nullptr) bytes = std::max(bytes, d.last->workspace(r.S, c.workers().threads()));
    }
    BOLIDE_TRY(run.workspace, c.scratch(DType::kU8, {static_cast<int64_t>(bytes)}));
    for (int64_t d = 0; d < r.directions; ++d) one_direction(run, d, initial, y, last);
    return true;
  }

 private:
  struct Run {
    RunContext& c;
    const Recurrence& r;
    int64_t G;  // gates * H
    Tensor input, gates, states, workspace;
    float* state(int64_t i) { return states.mutate<float>().data() + i * r.S * r.H; }
    void multiply(const PackedMatrix& matrix, PackedMatrix::Rows rows) {
      matrix.run(rows, {workspace.mutable_data(), workspace.bytes()}, c.workers());
    }
  };

  void one_direction(Run& run, int64_t direction, const Tensor* const (&initial)[2], Tensor* y,
                     Tensor* const (&last)[2]) const {
    const Recurrence& r = run.r;
    const Direction& d = directions_[static_cast<size_t>(direction)];
    const int64_t H = r.H, G = run.G;
    float *const h = run.state(0), *const cell = run.state(1), *const spare = run.state(2);
    run.multiply(*d.input, {.rows = r.T * r.S,
                            .x = (*run.c.tensor(0))->as<float>().data(),
                            .x_stride = r.I,
                            .out = run.input.mutate<float>().data(),
                            .out_stride = G,
                            .bias = d.bias.empty() ? nullptr : d.bias.data()});
    for (int i = 0; i < 2; ++i)
      for (int64_t s = 0; s < r.S; ++s) {
        float* to = run.state(i) + s * H;
        if (initial[i] != nullptr)
          std::copy_n(initial[i]->as<float>().data() + r.state_row(direction, s), H, to);
        else
          std::fill_n(to, H, 0.0f);
      }
    const bool backward = r.backward || direction == 1;
    for (int64_t k = 0; k < r.T; ++k) {
      const int64_t t = backward ? r.T - 1 - k : k;
      const float* from = run.input.as<float>().data() + r.x_row(t, 0) / r.I * G;
      const int64_t stride = r.batch_first ? r.T * G : G;
      lstm_ ? lstm_step(run, d, from, stride, h, cell, spare) : gru_step(run, d, from, stride, h, spare);
      for (int64_t s = 0; s < r.S; ++s) std::copy_n(h + s * H, H, y->mutate<float>().data() + r.y_row(t, direction, s));
    }
    for (int i = 0; i < 2; ++i)
      for (int64_t s = 0; s < r.S && last[i] != nullptr; ++s)
        std::copy_n(run.state(i) + s * H, H, last[i]->mutate<float>().data() + r.state_row(direction, s));
  }

  // Gates i, o, f, c; `spare` [S, H].
  void lstm_step(Run& run, const Direction& d, const float* input, int64_t stride, float* h, float* c,
                 float* spare) const {
    const int64_t H = run.r.H;
    float* const gates = run.gates.mutate<float>().data();
    if (rounds_state_) {
      std::copy_n(h, run.r.S * H, spare);
      round_to_u8({spare, static_cast<size_t>(run.r.S * H)});
    }
    run.multiply(*d.state, {.rows = run.r.S,
                            .x = rounds_state_ ? spare : h,
                            .x_stride = H,
                            .out = gates,
                            .out_stride = run.G,
                            .residual = input,
                            .residual_stride = stride});
    for (int64_t s = 0; s < run.r.S; ++s) {
      float *const g = gates + s * run.G, *const state = c + s * H, *const out = h + s * H;
      rows_.unary[isa::kRowSigmoid](g, g, 3 * H, nullptr);
      rows_.unary[isa::kRowTanh](g + 3 * H, g + 3 * H, H, nullptr);
      rows_.binary[isa::kRowMultiply](g, g + 3 * H, g, H);
      rows_.binary[isa::kRowMultiply](g + 2 * H, state, state, H);
      rows_.binary[isa::kRowAdd](state, g, state, H);
      rows_.unary[isa::kRowTanh](state, out, H, nullptr);
      rows_.binary[isa::kRowMultiply](out, g + H, out, H);
    }
  }

  // Gates z, r, h; `spare` [S, H].
  void gru_step(Run& run, const Direction& d, const float* input, int64_t stride, float* h, float* spare) const {
    const int64_t H = run.r.H, S = run.r.S;
    float* const gates = run.gates.mutate<float>().data();
    run.multiply(*d.state, {.rows = S,
                            .x = h,
                            .x_stride = H,
                            .out = gates,
                            .out_stride = run.G,
                            .residual = input,
                            .residual_stride = stride});
    for (int64_t s = 0; s < S; ++s) {
      float* const g = gates + s * run.G;
      rows_.unary[isa::kRowSigmoid](g, g, 2 * H, nullptr);
      if (before_reset_)
        std::copy_n(h + s * H, H, spare + s * H);
      else
        rows_.binary[isa::kRowMultiply](g + H, h + s * H, spare + s * H, H);
    }
    run.multiply(*d.last, {.rows = S,
                           .x = spare,
                           .x_stride = H,
                           .out = gates + 2 * H,
                           .out_stride = run.G,
                           .bias = d.state_bias.empty() ? nullptr : d.state_bias.data()});
    for (int64_t s = 0; s < S; ++s) {
      float *const g = gates + s * run.G, *const next = g + 2 * H, *const state = h + s * H;
      if (before_reset_) rows_.binary[isa::kRowMultiply](next, g + H, next, H);
      rows_.binary[isa::kRowAdd](next, input + s * stride + 2 * H, next, H);
      rows_.unary[isa::kRowTanh](next, next, H, nullptr);
      // next + z (h - next)
      rows_.binary[isa::kRowSubtract](state, next, state, H);
      rows_.binary[isa::kRowMultiply](state, g, state, H);
      rows_.binary[isa::kRowAdd](state, next, state, H);
    }
  }

  const isa::RowFunctions& rows_;
  std::vector<Direction> directions_;
  bool lstm_, before_reset_, rounds_state_;
};

bool is_f32(const Tensor* t, int rank) { return t != nullptr && t->dtype() == DType::kF32 && t->rank() == rank; }

Prepared prepare(const PrepareContext& c, bool lstm, const Tensor* w, const Tensor* weights, bool rounds_state) {
  const isa::RowFunctions* rows = row_functions(c.device.isa);
  const Tensor* bias = c.constant(3);
  BOLIDE_TRY(const int64_t coupled, c.attributes.integer("input_forget", 0));
  BOLIDE_TRY(const int64_t linear, c.attributes.integer("linear_before_reset", 0));
  if (rows == nullptr || !is_f32(w, 3) || !is_f32(weights, 3) || coupled != 0 || (c.has(3) && !is_f32(bias, 2)))
    return nullptr;
  const int64_t gates = lstm ? 4 : 3, D = weights->dim(0), H = weights->dim(2), I = w->dim(2), G = gates * H;
  if (D < 1 || D > 2 || weights->dim(1) != G || w->shape() != Shape{D, G, I} ||
      (bias != nullptr && bias->shape() != Shape{D, 2 * G}))
    return nullptr;
  const bool before_reset = !lstm && linear != 0;
  std::vector<Direction> directions;
  for (int64_t i = 0; i < D; ++i) {
    Direction d;
    const auto pack = [&](const Tensor& from, int64_t k, int64_t first, int64_t count) {
      const float* data = from.as<float>().data() + (i * G + first) * k;
      return PackedMatrix::make({data, k, count, 1, k}, c.compute, c.device, c.workers);
    };
    BOLIDE_TRY(d.input, pack(*w, I, 0, G));
    BOLIDE_TRY(d.state, pack(*weights, H, 0, lstm ? G : 2 * H));
    if (!lstm) {
      BOLIDE_TRY(d.last, pack(*weights, H, 2 * H, H));
    }
    if (d.input == nullptr || d.state == nullptr || (!lstm && d.last == nullptr)) return nullptr;
    if (bias != nullptr) {
      const float* of = bias->as<float>().data() + i * 2 * G;
      d.bias.assign(of, of + G);
      for (int64_t j = 0; j < (before_reset ? 2 * H : G); ++j) d.bias[static_cast<size_t>(j)] += of[G + j];
      if (before_reset) d.state_bias.assign(of + G + 2 * H, of + 2 * G);
    }
    directions.push_back(std::move(d));
  }
  return std::make_unique<PreparedRecurrence>(*rows, std::move(directions), lstm, before_reset, rounds_state);
}

}  // namespace

Prepared prepare_lstm(const PrepareContext& c) { return prepare(c, true, c.constant(1), c.constant(2), false); }
Prepared prepare_gru(const PrepareContext& c) { return prepare(c, false, c.constant(1), c.constant(2), false); }
Prepared prepare_rounded_lstm(const PrepareContext& c, const Tensor& w, const Tensor& r) {
  return prepare(c, true, &w, &r, true);
}

}  // namespace bolide
