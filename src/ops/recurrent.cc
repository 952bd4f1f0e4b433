#include "ops/recurrent.h"

#include <algorithm>
#include <cmath>

#include "ops/ops.h"
#include "ops/prepared_rows.h"

namespace bolide {
namespace {

struct NamedActivation {
  std::string_view name;
  Activation::Kind kind;
  double alpha, beta;
};
using Kind = Activation::Kind;
constexpr NamedActivation kActivations[] = {
    {"relu", Kind::kRelu, 0, 0},
    {"tanh", Kind::kTanh, 0, 0},
    {"sigmoid", Kind::kSigmoid, 0, 0},
    {"affine", Kind::kAffine, 1, 0},
    {"leakyrelu", Kind::kLeakyRelu, 0.01, 0},
    {"thresholdedrelu", Kind::kThresholdedRelu, 1, 0},
    {"scaledtanh", Kind::kScaledTanh, 1, 1},
    {"hardsigmoid", Kind::kHardSigmoid, 0.2, 0.5},
    {"elu", Kind::kElu, 1, 0},
    {"softsign", Kind::kSoftsign, 0, 0},
    {"softplus", Kind::kSoftplus, 0, 0},
};
constexpr bool has_alpha(Kind kind) {
  return kind == Kind::kAffine || kind == Kind::kLeakyRelu || kind == Kind::kThresholdedRelu ||
         kind == Kind::kScaledTanh || kind == Kind::kHardSigmoid || kind == Kind::kElu;
}
constexpr bool has_beta(Kind kind) {
  return kind == Kind::kAffine || kind == Kind::kScaledTanh || kind == Kind::kHardSigmoid;
}

// Names in any case; alphas and betas are listed for those alone that have one.
Result<std::vector<Activation>> read_activations(const RunContext& c, const std::vector<std::string>& functions,
                                                 int64_t directions) {
  std::vector<std::string> standard;
  for (int64_t d = 0; d < directions; ++d) standard.insert(standard.end(), functions.begin(), functions.end());
  BOLIDE_TRY(auto names, c.attributes().texts("activations", standard));
  BOLIDE_TRY(const auto alphas, c.attributes().numbers("activation_alpha"));
  BOLIDE_TRY(const auto betas, c.attributes().numbers("activation_beta"));
  if (names.size() != standard.size())
    return error(Code::kInvalid, fmt::format("activations has {} names, expected {}", names.size(), standard.size()));
  std::vector<Activation> to;
  size_t alpha = 0, beta = 0;
  for (std::string& name : names) {
    for (char& letter : name)
      if (letter >= 'A' && letter <= 'Z') letter = static_cast<char>(letter - 'A' + 'a');
    const auto* found = std::find_if(std::begin(kActivations), std::end(kActivations),
                                     [&](const NamedActivation& known) { return known.name == name; });
    if (found == std::end(kActivations))
      return error(Code::kInvalid, fmt::format("activations has '{:.40}', which is none", name));
    Activation activation{found->kind, found->alpha, found->beta};
    if (has_alpha(found->kind) && alpha < alphas.size()) activation.alpha = static_cast<double>(alphas[alpha++]);
    if (has_beta(found->kind) && beta < betas.size()) activation.beta = static_cast<double>(betas[beta++]);
    to.push_back(activation);
  }
  return to;
}

Result<> check_input(const RunContext& c, size_t i, const Shape& shape, std::string_view name) {
  BOLIDE_TRY(const Tensor* tensor, c.tensor_if(i));
  return tensor == nullptr ? Result<>() : expect_shape(*tensor, shape, name);
}

}  // namespace

double Activation::operator()(double x) const {
  switch (kind) {
    case Kind::kRelu: return std::max(x, 0.0);
    case Kind::kTanh: return std::tanh(x);
    case Kind::kSigmoid: return 1 / (1 + std::exp(-x));
    case Kind::kAffine: return alpha * x + beta;
    case Kind::kLeakyRelu: return x >= 0 ? x : alpha * x;
    case Kind::kThresholdedRelu: return x >= alpha ? x : 0;
    case Kind::kScaledTanh: return alpha * std::tanh(beta * x);
    case Kind::kHardSigmoid: return std::min(std::max(alpha * x + beta, 0.0), 1.0);
    case Kind::kElu: return x >= 0 ? x : alpha * std::expm1(x);
    case Kind::kSoftsign: return x / (1 + std::abs(x));
    case Kind::kSoftplus: return x > 30 ? x : std::log1p(std::exp(x));
  }
  return x;
}

Result<Recurrence> Recurrence::read(const RunContext& c, int64_t gates, const std::vector<std::string>& functions) {
  BOLIDE_TRY(const Tensor* x, c.tensor(0));
  BOLIDE_TRY(const Tensor* w, c.tensor(1));
  BOLIDE_TRY(const Tensor* weights, c.tensor(2));
  BOLIDE_TRY(const std::string direction, c.attributes().text("direction", "forward"));
  BOLIDE_TRY(const int64_t layout, c.attributes().integer("layout", 0));
  BOLIDE_TRY(const float clip, c.attributes().number("clip", 0));
  Recurrence r;
  r.gates = gates;
  r.clip = static_cast<double>(clip);
  r.batch_first = layout != 0;
  r.backward = direction == "reverse";
  r.directions = direction == "bidirectional" ? 2 : 1;
  if (direction != "forward" && direction != "foward" && direction != "reverse" && direction != "bidirectional")
    return error(Code::kInvalid, fmt::format("direction is '{:.40}'", direction));
  if (x->rank() != 3 || weights->rank() != 3)
    return error(Code::kInvalid, fmt::format("X is {} and R {}, expected 3 dims each", to_string(x->shape()),
                                             to_string(weights->shape())));
  r.T = x->dim(r.batch_first ? 1 : 0), r.S = x->dim(r.batch_first ? 0 : 1), r.I = x->dim(2), r.H = weights->dim(2);
  BOLIDE_TRY(const int64_t given, c.attributes().integer("hidden_size", r.H));
  if (given != r.H) return error(Code::kInvalid, fmt::format("hidden_size is {}, R has {}", given, r.H));
  BOLIDE_TRY(product_of(std::array{r.directions, gates, int64_t{2}, r.H, std::max(r.I, r.H)}));
  BOLIDE_TRY(product_of(std::array{r.T, r.directions, r.S, r.H, gates}));
  BOLIDE_TRY(expect_shape(*w, {r.directions, gates * r.H, r.I}, "W"));
  BOLIDE_TRY(expect_shape(*weights, {r.directions, gates * r.H, r.H}, "R"));
  BOLIDE_TRY(check_input(c, 3, {r.directions, 2 * gates * r.H}, "B"));
  BOLIDE_TRY(check_input(c, 4, {r.S}, "sequence_lens"));
  BOLIDE_TRY(check_input(c, 5, r.state_shape(), "initial_h"));
  BOLIDE_TRY(r.lengths, c.integers(4, std::vector<int64_t>(static_cast<size_t>(r.S), r.T), r.S));
  for (const int64_t length : r.lengths)
    if (length < 0 || length > r.T)
      return error(Code::kInvalid, fmt::format("sequence_lens has {} for sequences of {}", length, r.T));
  BOLIDE_TRY(r.activations, read_activations(c, functions, r.directions));
  return r;
}

Shape Recurrence::y_shape() const { return batch_first ? Shape{S, T, directions, H} : Shape{T, directions, S, H}; }
Shape Recurrence::state_shape() const { return batch_first ? Shape{S, directions, H} : Shape{directions, S, H}; }

template <class T>
Result<> run_over_time(RunContext& c, const Recurrence& r, int state_outputs, StepOf<T> step) {
  BOLIDE_TRY(const Tensor* given, c.tensor(0));
  BOLIDE_TRY(const Tensor x, widened<T>(c, *given));
  BOLIDE_TRY(const Tensor w, widened_if<T>(c, 1));
  BOLIDE_TRY(Tensor y, make_wide<T>(c, r.y_shape(), true));
  const int64_t G = r.gates * r.H;
  BOLIDE_TRY(Tensor input, make_wide<T>(c, {r.T, r.S, G}));
  std::vector<Tensor> last;
  for (int i = 0; i < state_outputs; ++i) {
    BOLIDE_TRY(Tensor made, make_wide<T>(c, r.state_shape()));
    last.push_back(std::move(made));
  }
  const auto states = static_cast<size_t>(r.S * r.H);
  for (int64_t d = 0; states > 0 && d < r.directions; ++d) {
    // The inputs of all steps at once; of [S, T, I], a sequence at a time.
    multiply<T>(c.workers(), r.batch_first ? r.T : r.T * r.S, G, r.I, r.batch_first ? r.S : 1, [&](int64_t s) {
      return Product<T>{{x.as<T>().data() + r.x_row(0, s), r.I, 1},
                        {w.as<T>().data() + d * G * r.I, 1, r.I},
                        input.mutate<T>().data() + s * G,
                        r.batch_first ? r.S * G : G};
    });
    std::vector<T> state[2];
    for (size_t i = 0; i < 2; ++i) {
      state[i].assign(states, T{});
      if (static_cast<int>(i) >= state_outputs) continue;
      BOLIDE_TRY(const Tensor initial, widened_if<T>(c, 5 + i));
      for (int64_t s = 0; initial && s < r.S; ++s)
        std::copy_n(initial.as<T>().data() + r.state_row(d, s), r.H, state[i].data() + s * r.H);
    }
    const bool backward = r.backward || d == 1;
    std::vector<bool> running(static_cast<size_t>(r.S));
    for (int64_t k = 0; k < r.T; ++k) {
      const int64_t t = backward ? r.T - 1 - k : k;
      for (size_t s = 0; s < running.size(); ++s) running[s] = t < r.lengths[s];
      Cell<T> cell{d, input.as<T>().data() + t * r.S * G, state[0], state[1], running};
      step(cell);
      for (int64_t s = 0; s < r.S; ++s)
        if (running[static_cast<size_t>(s)])
          std::copy_n(state[0].data() + s * r.H, r.H, y.mutate<T>().data() + r.y_row(t, d, s));
    }
    for (size_t i = 0; i < last.size(); ++i)
      for (int64_t s = 0; s < r.S; ++s)
        std::copy_n(state[i].data() + s * r.H, r.H, last[i].mutate<T>().data() + r.state_row(d, s));
  }
  for (size_t i = 0; i < last.size(); ++i) BOLIDE_TRY(emit(c, i + 1, given->dtype(), std::move(last[i])));
  return emit(c, 0, given->dtype(), std::move(y));
}

namespace {

// h [S, rows' count] times the rows [first, first + count) of R: out [S, count].
template <class T>
void recur(RunContext& c, const Recurrence& r, const Tensor& weights, int64_t d, int64_t first, int64_t count,
           const std::vector<T>& h, std::vector<T>& out) {
  out.resize(static_cast<size_t>(r.S * count));
  multiply<T>(c.workers(), r.S, count, r.H, 1, [&](int64_t) {
    return Product<T>{
        {h.data(), r.H, 1}, {weights.as<T>().data() + (d * r.gates * r.H + first) * r.H, 1, r.H}, out.data(), count};
  });
}

// Calls f(sequence, hidden unit) for the sequences that run.
template <class T, class F>
void each_unit(const Recurrence& r, const Cell<T>& cell, F&& f) {
  for (int64_t s = 0; s < r.S; ++s)
    if (cell.running[static_cast<size_t>(s)])
      for (int64_t j = 0; j < r.H; ++j) f(s, j);
}

// Bias of W and R for row `i` of the gates, of which `part` 0 is W's and 1 is R's.
template <class T>
double bias_of(const Recurrence& r, const Tensor& bias, int64_t d, int part, int64_t i) {
  return bias ? static_cast<double>(bias.as<T>()[static_cast<size_t>((2 * d + part) * r.gates * r.H + i)]) : 0;
}

Result<> run_rnn(RunContext& c) {
  BOLIDE_TRY(const Recurrence r, Recurrence::read(c, 1, {"Tanh"}));
  BOLIDE_TRY(const Tensor* x, c.tensor(0));
  return in_float(x->dtype(), "X", [&]<class T>() -> Result<> {
    BOLIDE_TRY(const Tensor weights, widened_if<T>(c, 2));
    BOLIDE_TRY(const Tensor bias, widened_if<T>(c, 3));
    std::vector<T> products;
    return run_over_time<T>(c, r, 1, [&](Cell<T>& cell) {
      const int64_t d = cell.direction;
      recur(c, r, weights, d, 0, r.H, cell.h, products);
      const Activation& f = r.activations[static_cast<size_t>(d)];
      each_unit(r, cell, [&](int64_t s, int64_t j) {
        const auto at = static_cast<size_t>(s * r.H + j);
        const double sum = static_cast<double>(cell.input[at]) + static_cast<double>(products[at]);
        cell.h[at] = static_cast<T>(f(r.clipped(sum + bias_of<T>(r, bias, d, 0, j) + bias_of<T>(r, bias, d, 1, j))));
      });
    });
  });
}

}  // namespace

void round_to_u8(std::span<float> values) {
  float least = 0, most = 0;
  for (const float value : values) least = std::min(least, value), most = std::max(most, value);
  const float scale = most == least ? 1 : (most - least) / 255;
  const float zero = std::nearbyint(std::clamp(-least / scale, 0.0F, 255.0F));
  for (float& value : values) value = (std::clamp(std::nearbyint(value / scale) + zero, 0.0F, 255.0F) - zero) * scale;
}

// Gates in the order i, o, f, c; peepholes i, o, f.
Result<> run_lstm(RunContext& c, bool rounds_state) {
  BOLIDE_TRY(const Recurrence r, Recurrence::read(c, 4, {"Sigmoid", "Tanh", "Tanh"}));
  BOLIDE_TRY(const Tensor* x, c.tensor(0));
  BOLIDE_TRY(const int64_t coupled, c.attributes().integer("input_forget", 0));
  BOLIDE_TRY(check_input(c, 6, r.state_shape(), "initial_c"));
  BOLIDE_TRY(check_input(c, 7, {r.directions, 3 * r.H}, "P"));
  return in_float(x->dtype(), "X", [&]<class T>() -> Result<> {
    BOLIDE_TRY(const Tensor weights, widened_if<T>(c, 2));
    BOLIDE_TRY(const Tensor bias, widened_if<T>(c, 3));
    BOLIDE_TRY(const Tensor peephole, widened_if<T>(c, 7));
    std::vector<T> products, rounded;
    return run_over_time<T>(c, r, 2, [&](Cell<T>& cell) {
      const int64_t d = cell.direction;
      if constexpr (std::is_same_v<T, float>)
        if (rounds_state) rounded = cell.h, round_to_u8(rounded);
      recur(c, r, weights, d, 0, 4 * r.H, rounds_state ? rounded : cell.h, products);
      const Activation* f = r.activations.data() + d * 3;
      each_unit(r, cell, [&](int64_t s, int64_t j) {
        const auto at = static_cast<size_t>(s * r.H + j);
        const auto gate = [&](int64_t k) {
          const auto from = static_cast<size_t>(s * 4 * r.H + k * r.H + j);
          return static_cast<double>(cell.input[from]) + static_cast<double>(products[from]) +
                 bias_of<T>(r, bias, d, 0, k * r.H + j) + bias_of<T>(r, bias, d, 1, k * r.H + j);
        };
        const auto peep = [&](int64_t k, double state) {
          return peephole ? static_cast<double>(peephole.as<T>()[static_cast<size_t>((d * 3 + k) * r.H + j)]) * state
                          : 0;
        };
        const double before = static_cast<double>(cell.c[at]);
        const double in = f[0](r.clipped(gate(0) + peep(0, before)));
        const double forget = coupled != 0 ? 1 - in : f[0](r.clipped(gate(2) + peep(2, before)));
        const double state = forget * before + in * f[1](r.clipped(gate(3)));
        const double out = f[0](r.clipped(gate(1) + peep(1, state)));
        cell.c[at] = static_cast<T>(state);
        cell.h[at] = static_cast<T>(out * f[2](state));  // not clipped, as ONNX Runtime has it
      });
    });
  });
}

namespace {

Result<> run_plain_lstm(RunContext& c) { return run_lstm(c, false); }

// Gates in the order z, r, h.
Result<> run_gru(RunContext& c) {
  BOLIDE_TRY(const Recurrence r, Recurrence::read(c, 3, {"Sigmoid", "Tanh"}));
  BOLIDE_TRY(const Tensor* x, c.tensor(0));
  BOLIDE_TRY(const int64_t before_reset, c.attributes().integer("linear_before_reset", 0));
  return in_float(x->dtype(), "X", [&]<class T>() -> Result<> {
    BOLIDE_TRY(const Tensor weights, widened_if<T>(c, 2));
    BOLIDE_TRY(const Tensor bias, widened_if<T>(c, 3));
    std::vector<T> gates, hidden, reset(static_cast<size_t>(r.S * r.H)), update(reset.size()), scaled(reset.size());
    return run_over_time<T>(c, r, 1, [&](Cell<T>& cell) {
      const int64_t d = cell.direction;
      const Activation* f = r.activations.data() + d * 2;
      const auto input = [&](int64_t s, int64_t k, int64_t j) {
        return static_cast<double>(cell.input[s * 3 * r.H + k * r.H + j]) + bias_of<T>(r, bias, d, 0, k * r.H + j);
      };
      const auto recurrent_bias = [&](int64_t k, int64_t j) { return bias_of<T>(r, bias, d, 1, k * r.H + j); };
      recur(c, r, weights, d, 0, 2 * r.H, cell.h, gates);
      each_unit(r, cell, [&](int64_t s, int64_t j) {
        const auto at = static_cast<size_t>(s * r.H + j);
        const auto gate = [&](int64_t k) {
          const double product = static_cast<double>(gates[static_cast<size_t>(s * 2 * r.H + k * r.H + j)]);
          return f[0](r.clipped(input(s, k, j) + product + recurrent_bias(k, j)));
        };
        update[at] = static_cast<T>(gate(0)), reset[at] = static_cast<T>(gate(1));
        scaled[at] = before_reset != 0 ? cell.h[at] : reset[at] * cell.h[at];
      });
      recur(c, r, weights, d, 2 * r.H, r.H, scaled, hidden);
      each_unit(r, cell, [&](int64_t s, int64_t j) {
        const auto at = static_cast<size_t>(s * r.H + j);
        double product = static_cast<double>(hidden[at]) + recurrent_bias(2, j);
        if (before_reset != 0) product *= static_cast<double>(reset[at]);
        const double next = f[1](r.clipped(input(s, 2, j) + product)), keep = static_cast<double>(update[at]);
        cell.h[at] = static_cast<T>((1 - keep) * next + keep * static_cast<double>(cell.h[at]));
      });
    });
  });
}

constexpr OpDef kOps[] = {
    {"", "RNN", 1, run_rnn},
    {.domain = "", .name = "LSTM", .run = run_plain_lstm, .prepare = prepare_lstm},
    {.domain = "", .name = "GRU", .run = run_gru, .prepare = prepare_gru},
};

}  // namespace

std::span<const OpDef> recurrent_ops() { return kOps; }

}  // namespace bolide
