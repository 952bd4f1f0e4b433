// Einsum. Operands are contracted from left to right: each pair becomes one batch of matrix products
// [batch, M, K] x [batch, K, N], with labels that nothing needs any more summed before. A label of size 1 is left out
// of an operand, which is how sizes of 1 broadcast.
#include "ops/einsum.h"

#include <algorithm>
#include <map>

#include "ops/dense.h"

namespace bolide {
namespace {

// 'A'..'z' are letters, kEllipsis + i the i-th axis of "..." from the right.
using Label = int;
constexpr Label kEllipsis = 256;
using Labels = std::vector<Label>;

bool contains(const Labels& labels, Label label) {
  return std::find(labels.begin(), labels.end(), label) != labels.end();
}

struct Term {
  Labels before, after;  // of "..."
  bool ellipsis = false;
};

Result<Term> parse_term(std::string_view text) {
  Term term;
  for (size_t i = 0; i < text.size(); ++i) {
    const char letter = text[i];
    if (letter == ' ') continue;
    if (text.substr(i, 3) == "...") {
      if (term.ellipsis) return error(Code::kInvalid, fmt::format("equation: '{:.80}' has '...' twice", text));
      term.ellipsis = true, i += 2;
    } else if ((letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z')) {
      (term.ellipsis ? term.after : term.before).push_back(letter);
    } else {
      return error(Code::kInvalid, fmt::format("equation: '{:.80}' has a character that is no letter", text));
    }
  }
  return term;
}

Labels labels_of(const Term& term, int ellipsis_rank) {
  Labels labels = term.before;
  for (int i = ellipsis_rank; i > 0; --i) labels.push_back(kEllipsis + i);
  labels.insert(labels.end(), term.after.begin(), term.after.end());
  return labels;
}

using Sizes = std::map<Label, int64_t>;

template <class T>
struct Operand {
  Labels labels;  // each once, none of size 1
  std::vector<int64_t> strides;
  Tensor data;
};

// Calls f(offset of the operand) for all values of the labels, the last fastest; 0 strides for those it lacks.
template <class T, class F>
void walk(const Operand<T>& operand, const Labels& labels, const Sizes& sizes, F&& f) {
  std::vector<int64_t> size, stride, at(labels.size());
  for (const Label label : labels) {
    size.push_back(sizes.at(label));
    const auto found = std::find(operand.labels.begin(), operand.labels.end(), label);
    stride.push_back(
        found == operand.labels.end() ? 0 : operand.strides[static_cast<size_t>(found - operand.labels.begin())]);
    if (size.back() == 0) return;
  }
  int64_t offset = 0;
  while (true) {
    f(offset);
    size_t d = labels.size();
    while (d > 0) {
      --d;
      offset += stride[d];
      if (++at[d] < size[d]) break;
      offset -= stride[d] * size[d], at[d] = 0;
      if (d == 0) return;
    }
    if (labels.empty()) return;
  }
}

Result<int64_t> count_of(const Labels& labels, const Sizes& sizes) {
  std::vector<int64_t> dims;
  for (const Label label : labels) dims.push_back(sizes.at(label));
  return product_of(dims);
}

// The operand's elements with these labels in this order, contiguous; all its other labels are summed.
template <class T>
Result<Operand<T>> arrange(const RunContext& c, const Operand<T>& operand, const Labels& labels, const Sizes& sizes) {
  Labels summed;
  for (const Label label : operand.labels)
    if (!contains(labels, label)) summed.push_back(label);
  BOLIDE_TRY(const int64_t count, count_of(labels, sizes));
  Operand<T> to;
  to.labels = labels;
  to.strides.resize(labels.size());
  int64_t step = 1;
  for (size_t i = labels.size(); i-- > 0;) to.strides[i] = step, step *= sizes.at(labels[i]);
  BOLIDE_TRY(to.data, make_wide<T>(c, {count}));
  const T* from = operand.data.template as<T>().data();
  T* out = to.data.template mutate<T>().data();
  walk(operand, labels, sizes, [&](int64_t offset) {
    T sum{};
    walk(operand, summed, sizes, [&](int64_t inner) { sum += from[offset + inner]; });
    *out++ = sum;
  });
  return to;
}

template <class T>
Result<Operand<T>> contract(const RunContext& c, const Operand<T>& a, const Operand<T>& b, const Labels& needed,
                            const Sizes& sizes) {
  Labels batch, rows, depth, columns;
  for (const Label label : a.labels) {
    if (contains(b.labels, label))
      (contains(needed, label) ? batch : depth).push_back(label);
    else if (contains(needed, label))
      rows.push_back(label);
  }
  for (const Label label : b.labels)
    if (!contains(a.labels, label) && contains(needed, label)) columns.push_back(label);
  const auto join = [](std::initializer_list<const Labels*> parts) {
    Labels all;
    for (const Labels* part : parts) all.insert(all.end(), part->begin(), part->end());
    return all;
  };
  BOLIDE_TRY(const Operand<T> left, arrange(c, a, join({&batch, &rows, &depth}), sizes));
  BOLIDE_TRY(const Operand<T> right, arrange(c, b, join({&batch, &depth, &columns}), sizes));
  BOLIDE_TRY(const int64_t count, count_of(batch, sizes));
  BOLIDE_TRY(const int64_t M, count_of(rows, sizes));
  BOLIDE_TRY(const int64_t K, count_of(depth, sizes));
  BOLIDE_TRY(const int64_t N, count_of(columns, sizes));
  Operand<T> to;
  to.labels = join({&batch, &rows, &columns});
  BOLIDE_TRY(const int64_t total, count_of(to.labels, sizes));
  to.strides.resize(to.labels.size());
  int64_t step = 1;
  for (size_t i = to.labels.size(); i-- > 0;) to.strides[i] = step, step *= sizes.at(to.labels[i]);
  BOLIDE_TRY(to.data, make_wide<T>(c, {total}));
  multiply<T>(c.workers(), M, N, K, count, [&](int64_t i) {
    return Product<T>{{left.data.template as<T>().data() + i * M * K, K, 1},
                      {right.data.template as<T>().data() + i * K * N, N, 1},
                      to.data.template mutate<T>().data() + i * M * N,
                      N};
  });
  return to;
}

struct Equation {
  std::vector<Labels> inputs;  // one label an axis
  Labels output;
  Sizes sizes;
};

Result<Equation> read_equation(const RunContext& c) {
  BOLIDE_TRY(const std::string text, c.attributes().text("equation", ""));
  if (text.size() > 4096) return error(Code::kInvalid, "equation: is longer than 4096 characters");
  const size_t arrow = text.find("->");
  const std::string_view left = std::string_view(text).substr(0, arrow);
  std::vector<Term> terms;
  for (size_t begin = 0; begin <= left.size();) {
    const size_t end = std::min(left.find(',', begin), left.size());
    BOLIDE_TRY(Term term, parse_term(left.substr(begin, end - begin)));
    terms.push_back(std::move(term));
    begin = end + 1;
  }
  if (terms.size() != c.inputs())
    return error(Code::kInvalid,
                 fmt::format("equation: '{:.80}' has {} terms for {} inputs", text, terms.size(), c.inputs()));
  Equation equation;
  int widest = 0;
  for (size_t i = 0; i < terms.size(); ++i) {
    BOLIDE_TRY(const Tensor* tensor, c.tensor(i));
    const int spare = tensor->rank() - static_cast<int>(terms[i].before.size() + terms[i].after.size());
    if (spare < 0 || (spare > 0 && !terms[i].ellipsis))
      return error(Code::kInvalid, fmt::format("equation: term {} of '{:.80}' does not fit input {} {}", i, text, i,
                                               to_string(tensor->shape())));
    widest = std::max(widest, spare);
    equation.inputs.push_back(labels_of(terms[i], spare));
    for (int axis = 0; axis < tensor->rank(); ++axis) {
      const Label label = equation.inputs.back()[static_cast<size_t>(axis)];
      const auto [at, fresh] = equation.sizes.emplace(label, tensor->dim(axis));
      if (fresh || at->second == tensor->dim(axis) || tensor->dim(axis) == 1) continue;
      if (at->second != 1)
        return error(Code::kInvalid, fmt::format("equation: '{:.80}': axis {} of input {} is {}, elsewhere it is {}",
                                                 text, axis, i, tensor->dim(axis), at->second));
      at->second = tensor->dim(axis);
    }
  }
  if (arrow != std::string::npos) {
    BOLIDE_TRY(const Term term, parse_term(std::string_view(text).substr(arrow + 2)));
    equation.output = labels_of(term, term.ellipsis ? widest : 0);
  } else {  // "..." first, then letters that occur once, in order
    for (int i = widest; i > 0; --i) equation.output.push_back(kEllipsis + i);
    std::map<Label, int> uses;
    for (const Labels& labels : equation.inputs)
      for (const Label label : labels) ++uses[label];
    for (const auto& [label, count] : uses)
      if (label < kEllipsis && count == 1) equation.output.push_back(label);
  }
  if (equation.output.size() > kRankMax)
    return error(Code::kUnsupported, fmt::format("equation: an output of {} dims", equation.output.size()));
  for (size_t i = 0; i < equation.output.size(); ++i) {
    if (!equation.sizes.contains(equation.output[i]))
      return error(Code::kInvalid, fmt::format("equation: '{:.80}': no input has a label of the output", text));
    if (std::count(equation.output.begin(), equation.output.end(), equation.output[i]) > 1)
      return error(Code::kInvalid, fmt::format("equation: '{:.80}': a label is in the output twice", text));
  }
  return equation;
}

template <class T>
Result<Operand<T>> operand_of(const RunContext& c, size_t i, const Labels& labels, const Sizes& sizes) {
  Operand<T> operand;
  BOLIDE_TRY(operand.data, widened_if<T>(c, i));
  int64_t step = operand.data.elements();
  for (int axis = 0; axis < operand.data.rank(); ++axis) {
    const int64_t dim = operand.data.dim(axis);
    step = dim == 0 ? 0 : step / dim;
    const Label label = labels[static_cast<size_t>(axis)];
    if (dim == 1) continue;
    if (const auto found = std::find(operand.labels.begin(), operand.labels.end(), label);
        found != operand.labels.end()) {
      operand.strides[static_cast<size_t>(found - operand.labels.begin())] += step;  // a diagonal
    } else {
      operand.labels.push_back(label);
      operand.strides.push_back(step);
    }
  }
  for (int axis = 0; axis < operand.data.rank(); ++axis)  // "ii" of [1, 3] would read past the end
    for (int other = 0; other < axis; ++other)
      if (labels[static_cast<size_t>(axis)] == labels[static_cast<size_t>(other)] &&
          operand.data.dim(axis) != operand.data.dim(other))
        return error(Code::kInvalid, fmt::format("equation: input {} repeats a label for axes of {} and {}", i,
                                                 operand.data.dim(other), operand.data.dim(axis)));
  for (const Label label : operand.labels) BOLIDE_CHECK(sizes.contains(label), "label {}", label);
  return operand;
}

}  // namespace

Result<> run_einsum(RunContext& c) {
  if (c.inputs() == 0) return error(Code::kInvalid, "has no inputs");
  BOLIDE_TRY(const Equation equation, read_equation(c));
  BOLIDE_TRY(const Tensor* first, c.tensor(0));
  for (size_t i = 1; i < c.inputs(); ++i) {
    BOLIDE_TRY(const Tensor* other, c.tensor(i));
    if (other->dtype() != first->dtype())
      return error(Code::kInvalid, fmt::format("input {} is of {}, input 0 of {}", i, to_string(other->dtype()),
                                               to_string(first->dtype())));
  }
  return in_wide(first->dtype(), "an input", [&]<class T>() -> Result<> {
    BOLIDE_TRY(Operand<T> so_far, operand_of<T>(c, 0, equation.inputs[0], equation.sizes));
    for (size_t i = 1; i < c.inputs(); ++i) {
      BOLIDE_TRY(const Operand<T> next, operand_of<T>(c, i, equation.inputs[i], equation.sizes));
      Labels needed = equation.output;
      for (size_t later = i + 1; later < c.inputs(); ++later)
        needed.insert(needed.end(), equation.inputs[later].begin(), equation.inputs[later].end());
      BOLIDE_TRY(so_far, contract(c, so_far, next, needed, equation.sizes));
    }
    Labels order;
    Shape shape;
    for (const Label label : equation.output) {
      const int64_t size = equation.sizes.at(label);
      shape.dims[static_cast<size_t>(shape.rank++)] = size;
      if (size != 1) order.push_back(label);
    }
    BOLIDE_TRY(const Operand<T> done, arrange(c, so_far, order, equation.sizes));
    return emit(c, 0, first->dtype(), done.data.reshaped(shape));
  });
}

}  // namespace bolide
