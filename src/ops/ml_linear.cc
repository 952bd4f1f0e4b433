#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ops/ml_parts.h"
#include "ops/moves.h"
#include "ops/number.h"

namespace bolide::ml {
namespace {

// Winitzki 2008, "A handy approximation for the error function and its inverse".
double inverse_erf(double x) {
  const double rest = (1 - x) * (1 + x);
  if (!(rest > 0)) return 0;
  const double log = std::log(rest), v = 2 / (M_PI * 0.147) + 0.5 * log;
  return std::copysign(std::sqrt(std::sqrt(v * v - log / 0.147) - v), x);
}

double dot(std::span<const double> a, const float* b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * static_cast<double>(b[i]);
  return sum;
}

// x times coefficients [outputs, columns], plus intercepts.
Result<std::vector<double>> linear(const RunContext& c, const Matrix& x, int64_t outputs) {
  BOLIDE_TRY(const std::vector<float> coefficients, c.attributes().numbers("coefficients"));
  BOLIDE_TRY(const std::vector<float> intercepts, c.attributes().numbers("intercepts"));
  if (static_cast<int64_t>(coefficients.size()) / std::max<int64_t>(x.columns, 1) != outputs ||
      static_cast<int64_t>(coefficients.size()) != outputs * x.columns)
    return error(Code::kInvalid,
                 fmt::format("{} coefficients for {} outputs of {} columns", coefficients.size(), outputs, x.columns));
  if (!intercepts.empty() && static_cast<int64_t>(intercepts.size()) < outputs)
    return error(Code::kInvalid, fmt::format("{} intercepts for {} outputs", intercepts.size(), outputs));
  std::vector<double> scores;
  for (int64_t row = 0; row < x.rows; ++row)
    for (int64_t i = 0; i < outputs; ++i)
      scores.push_back(dot(x.row(row), coefficients.data() + i * x.columns) +
                       (intercepts.empty() ? 0 : static_cast<double>(intercepts[static_cast<size_t>(i)])));
  return scores;
}

}  // namespace

Result<Matrix> matrix_of(const RunContext& c) {
  BOLIDE_TRY(const Tensor* x, c.tensor(0));
  if (x->rank() != 1 && x->rank() != 2)
    return error(Code::kInvalid, fmt::format("X is {}, expected [C] or [N, C]", to_string(x->shape())));
  BOLIDE_TRY(std::vector<double> values, doubles_of(*x));
  return Matrix{x->rank() == 1 ? 1 : x->dim(0), x->dim(-1), std::move(values)};
}

Result<PostTransform> post_transform_of(const RunContext& c) {
  BOLIDE_TRY(const std::string name, c.attributes().text("post_transform", "NONE"));
  constexpr std::string_view kNames[] = {"NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"};
  const auto* const at = std::find(std::begin(kNames), std::end(kNames), name);
  if (at == std::end(kNames)) return error(Code::kInvalid, fmt::format("post_transform {:.40}", name));
  return static_cast<PostTransform>(at - std::begin(kNames));
}

void post_transform(PostTransform how, std::span<double> scores) {
  switch (how) {
    case PostTransform::kNone: return;
    case PostTransform::kLogistic:
      for (double& s : scores) s = 1 / (1 + std::exp(-s));
      return;
    case PostTransform::kProbit:
      for (double& s : scores) s = M_SQRT2 * inverse_erf(2 * s - 1);
      return;
    default: break;
  }
  if (scores.empty()) return;
  const double most = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  for (double& s : scores) {
    const bool is_zero = how == PostTransform::kSoftmaxZero && std::abs(s) <= 1e-7;  // stays one
    s = is_zero ? s * std::exp(-most) : std::exp(s - most);
    sum += s;
  }
  for (double& s : scores) s = sum == 0 ? 0.5 : s / sum;
}

std::vector<double> split_in_two(double score, bool is_probability, PostTransform how) {
  const bool is_plain = is_probability && how != PostTransform::kLogistic;
  std::vector<double> scores{is_plain ? 1 - score : -score, score};
  if (how == PostTransform::kLogistic || how == PostTransform::kProbit) post_transform(how, scores);
  return scores;
}

Result<Tensor> class_labels(const RunContext& c, std::string_view strings, std::string_view integers) {
  BOLIDE_TRY(std::vector<std::string> texts, c.attributes().texts(strings));
  BOLIDE_TRY(const std::vector<int64_t> numbers, c.attributes().integers(integers));
  if (texts.empty() == numbers.empty())
    return error(Code::kInvalid, fmt::format("has {} strings and {} integers as labels", texts.size(), numbers.size()));
  const auto count = static_cast<int64_t>(texts.size());
  return texts.empty() ? Tensor::vector<int64_t>(DType::kI64, numbers) : Tensor::strings({count}, std::move(texts));
}

Result<> set_scores(RunContext& c, size_t i, DType dtype, int64_t rows, const std::vector<double>& scores) {
  const int64_t columns = rows == 0 ? 0 : static_cast<int64_t>(scores.size()) / rows;
  BOLIDE_TRY(Tensor * y, c.make(i, dtype, {rows, columns}));
  return dispatch(kFloats, dtype, "an output", [&]<class T>() -> Result<> {
    for (size_t k = 0; k < scores.size(); ++k) y->mutate<T>()[k] = narrow<T>(static_cast<Wide<T>>(scores[k]));
    return {};
  });
}

Result<> set_classes(RunContext& c, const Tensor& labels, std::span<const int64_t> places,
                     const std::vector<double>& scores) {
  const auto rows = static_cast<int64_t>(places.size());
  BOLIDE_TRY(Tensor * y, c.make(0, labels.dtype(), {rows}));
  for (int64_t i = 0; i < rows; ++i) copy_block(labels, places[static_cast<size_t>(i)], *y, i, 1);
  return set_scores(c, 1, DType::kF32, rows, scores);
}

Result<> run_linear_regressor(RunContext& c) {
  BOLIDE_TRY(const Matrix x, matrix_of(c));
  BOLIDE_TRY(const int64_t targets, c.attributes().integer("targets", 1));
  BOLIDE_TRY(const PostTransform how, post_transform_of(c));
  if (targets < 1 || targets > 1 << 24) return error(Code::kInvalid, fmt::format("targets {}", targets));
  BOLIDE_TRY(std::vector<double> scores, linear(c, x, targets));
  for (int64_t row = 0; row < x.rows; ++row)
    post_transform(how, std::span(scores).subspan(static_cast<size_t>(row * targets), static_cast<size_t>(targets)));
  return set_scores(c, 0, DType::kF32, x.rows, scores);
}

Result<> run_linear_classifier(RunContext& c) {
  BOLIDE_TRY(const Matrix x, matrix_of(c));
  BOLIDE_TRY(const PostTransform how, post_transform_of(c));
  BOLIDE_TRY(const Tensor labels, class_labels(c, "classlabels_strings", "classlabels_ints"));
  BOLIDE_TRY(const std::vector<float> coefficients, c.attributes().numbers("coefficients"));
  const int64_t outputs = x.columns == 0 ? 0 : static_cast<int64_t>(coefficients.size()) / x.columns;
  const bool is_single = outputs == 1 && labels.elements() == 2;  // one score tells two classes apart
  if (!is_single && outputs != labels.elements())
    return error(Code::kInvalid, fmt::format("{} coefficients of {} columns for {} classes", coefficients.size(),
                                             x.columns, labels.elements()));
  BOLIDE_TRY(const std::vector<double> given, linear(c, x, outputs));
  std::vector<double> scores;
  std::vector<int64_t> places;
  const auto width = static_cast<size_t>(labels.elements());
  for (size_t row = 0; row < static_cast<size_t>(x.rows); ++row) {
    std::vector<double> mine;
    if (is_single) {
      places.push_back(given[row] > 0 ? 1 : 0);
      mine = split_in_two(given[row], true, how);
    } else {
      const auto from = given.begin() + static_cast<int64_t>(row * width);
      mine.assign(from, from + static_cast<int64_t>(width));
      places.push_back(std::max_element(mine.begin(), mine.end()) - mine.begin());
      post_transform(how, mine);
    }
    scores.insert(scores.end(), mine.begin(), mine.end());
  }
  return set_classes(c, labels, places, scores);
}

Result<> run_svm_regressor(RunContext& c) {
  const Attributes& a = c.attributes();
  BOLIDE_TRY(const Matrix x, matrix_of(c));
  BOLIDE_TRY(const PostTransform how, post_transform_of(c));
  BOLIDE_TRY(const std::string kernel, a.text("kernel_type", "LINEAR"));
  BOLIDE_TRY(const std::vector<float> parameters, a.numbers("kernel_params", {0, 0, 0}));
  BOLIDE_TRY(const std::vector<float> coefficients, a.numbers("coefficients"));
  BOLIDE_TRY(const std::vector<float> vectors, a.numbers("support_vectors"));
  BOLIDE_TRY(const std::vector<float> rho, a.numbers("rho"));
  BOLIDE_TRY(const int64_t supports, a.integer("n_supports", 0));
  BOLIDE_TRY(const int64_t one_class, a.integer("one_class", 0));
  const bool is_linear = supports == 0;
  const auto wanted = static_cast<size_t>(is_linear ? x.columns : supports);
  uint64_t numbers = 0;
  if (supports < 0 || rho.empty() || parameters.size() != 3 || coefficients.size() != wanted ||
      __builtin_mul_overflow(supports, x.columns, &numbers) || vectors.size() != numbers)
    return error(Code::kInvalid,
                 fmt::format("{} coefficients, {} numbers of support vectors, {} of rho and {} of the "
                             "kernel for {} vectors of {} columns",
                             coefficients.size(), vectors.size(), rho.size(), parameters.size(), supports, x.columns));
  if (kernel != "LINEAR" && kernel != "POLY" && kernel != "RBF" && kernel != "SIGMOID")
    return error(Code::kInvalid, fmt::format("kernel_type {:.40}", kernel));
  const double gamma = static_cast<double>(parameters[0]), shift = static_cast<double>(parameters[1]);
  const double degree = static_cast<double>(parameters[2]);
  const auto similarity = [&](std::span<const double> row, const float* vector) {
    if (kernel == "RBF") {
      double sum = 0;
      for (size_t i = 0; i < row.size(); ++i) {
        const double d = row[i] - static_cast<double>(vector[i]);
        sum += d * d;
      }
      return std::exp(-gamma * sum);
    }
    const double product = dot(row, vector);
    if (kernel == "POLY") return std::pow(gamma * product + shift, degree);
    return kernel == "SIGMOID" ? std::tanh(gamma * product + shift) : product;
  };
  std::vector<double> scores;
  for (int64_t row = 0; row < x.rows; ++row) {
    double score = static_cast<double>(rho[0]);
    if (is_linear) score += dot(x.row(row), coefficients.data());
    for (int64_t i = 0; i < supports; ++i)
      score += static_cast<double>(coefficients[static_cast<size_t>(i)]) *
               similarity(x.row(row), vectors.data() + i * x.columns);
    if (one_class != 0) score = score > 0 ? 1 : -1;
    post_transform(how, std::span(&score, 1));
    scores.push_back(score);
  }
  return set_scores(c, 0, DType::kF32, x.rows, scores);
}

}  // namespace bolide::ml
