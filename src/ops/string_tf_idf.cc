#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_map>

#include "ops/moves.h"
#include "ops/string_parts.h"

namespace bolide::strings {
namespace {

constexpr int64_t kColumnsMax = int64_t{1} << 28;

// n-grams of tokens as a trie; tokens are numbers of the pool's distinct ones.
class Grams {
 public:
  static constexpr int64_t kNone = -1;

  void add(std::span<const int64_t> tokens, int64_t column) {
    int64_t node = 0;
    for (const int64_t token : tokens) {
      const auto [edge, made] = edges_.try_emplace({node, token}, static_cast<int64_t>(columns_.size()));
      if (made) columns_.push_back(kNone);
      node = edge->second;
    }
    columns_[static_cast<size_t>(node)] = column;
  }
  // kNone: there is none.
  int64_t next(int64_t node, int64_t token) const {
    const auto edge = edges_.find({node, token});
    return edge == edges_.end() ? kNone : edge->second;
  }
  int64_t column(int64_t node) const { return columns_[static_cast<size_t>(node)]; }

 private:
  std::map<std::pair<int64_t, int64_t>, int64_t> edges_;
  std::vector<int64_t> columns_{kNone};
};

struct Vectorizer {
  Grams grams;
  int64_t shortest = 0, longest = 0, skips = 0, columns = 0;
  std::vector<float> weights;  // of columns; empty: 1 each
  bool is_count = true;        // else whether there is any

  void count(std::span<const int64_t> row, std::span<float> to) const {
    const auto length = static_cast<int64_t>(row.size());
    int64_t from_size = shortest;
    for (int64_t stride = 1; stride <= skips + 1 && stride <= std::max<int64_t>(length, 1); ++stride) {
      for (int64_t start = 0; start < length; ++start) {
        int64_t node = 0;
        for (int64_t size = 1, at = start; size <= longest && at < length; ++size, at += stride) {
          node = grams.next(node, row[static_cast<size_t>(at)]);
          if (node == Grams::kNone) break;
          if (size >= from_size && grams.column(node) != Grams::kNone) to[static_cast<size_t>(grams.column(node))] += 1;
        }
      }
      // Strides make no difference to single tokens: they count once.
      from_size = std::max<int64_t>(from_size, 2);
      if (from_size > longest) break;
    }
    for (size_t i = 0; i < to.size(); ++i) {
      if (!is_count) to[i] = to[i] > 0 ? 1.0F : 0.0F;
      if (!weights.empty()) to[i] *= weights[i];
    }
  }
};

// `pool`: numbers of the pool's tokens.
Result<Vectorizer> vectorizer_of(const RunContext& c, std::span<const int64_t> pool) {
  const Attributes& a = c.attributes();
  Vectorizer v;
  BOLIDE_TRY(const std::string mode, a.text("mode", ""));
  BOLIDE_TRY(v.shortest, a.integer("min_gram_length", 0));
  BOLIDE_TRY(v.longest, a.integer("max_gram_length", 0));
  BOLIDE_TRY(v.skips, a.integer("max_skip_count", 0));
  BOLIDE_TRY(const std::vector<int64_t> counts, a.integers("ngram_counts"));
  BOLIDE_TRY(const std::vector<int64_t> columns, a.integers("ngram_indexes"));
  BOLIDE_TRY(const std::vector<float> weights, a.numbers("weights"));
  if (mode != "TF" && mode != "IDF" && mode != "TFIDF") return error(Code::kInvalid, fmt::format("mode {:.40}", mode));
  if (v.shortest < 1 || v.longest < v.shortest || v.skips < 0 || v.skips > INT32_MAX)
    return error(Code::kInvalid, fmt::format("min_gram_length {}, max_gram_length {}, max_skip_count {}", v.shortest,
                                             v.longest, v.skips));
  for (const int64_t column : columns) {
    if (column < 0 || column >= kColumnsMax) return error(Code::kInvalid, fmt::format("ngram_indexes has {}", column));
    v.columns = std::max(v.columns, column + 1);
  }
  v.is_count = mode != "IDF";
  if (mode != "TF" && !weights.empty()) {
    if (weights.size() != columns.size())
      return error(Code::kInvalid, fmt::format("{} weights for {} n-grams", weights.size(), columns.size()));
    v.weights.assign(static_cast<size_t>(v.columns), 1);
    for (size_t i = 0; i < weights.size(); ++i) v.weights[static_cast<size_t>(columns[i])] = weights[i];
  }
  size_t gram = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    const auto all = static_cast<int64_t>(pool.size()), size = static_cast<int64_t>(i) + 1;
    const int64_t end = i + 1 < counts.size() ? counts[i + 1] : all;
    if (counts[i] < 0 || end < counts[i] || end > all || (end - counts[i]) % size != 0)
      return error(Code::kInvalid, fmt::format("ngram_counts: {}-grams at {} to {} of {}", size, counts[i], end, all));
    for (int64_t at = counts[i]; at < end; at += size, ++gram) {
      if (gram >= columns.size())
        return error(Code::kInvalid, fmt::format("{} ngram_indexes for more n-grams", columns.size()));
      if (size >= v.shortest && size <= v.longest)
        v.grams.add(pool.subspan(static_cast<size_t>(at), i + 1), columns[gram]);
    }
  }
  return v;
}

// The tokens as numbers: those of the pool from 0 on, all others -1.
template <class T>
struct Numbered {
  std::unordered_map<T, int64_t> numbers;

  std::vector<int64_t> add(const std::vector<T>& tokens) {
    std::vector<int64_t> list;
    for (const T& token : tokens)
      list.push_back(numbers.try_emplace(token, static_cast<int64_t>(numbers.size())).first->second);
    return list;
  }
  int64_t of(const T& token) const {
    const auto it = numbers.find(token);
    return it == numbers.end() ? -1 : it->second;
  }
};

}  // namespace

Result<> run_tf_idf(RunContext& c) {
  BOLIDE_TRY(const Tensor* x, c.tensor(0));
  if (x->rank() > 2)
    return error(Code::kInvalid, fmt::format("X is {}, expected [C] or [N, C]", to_string(x->shape())));
  std::vector<int64_t> pool, tokens;
  if (x->is_string()) {
    BOLIDE_TRY(const std::vector<std::string> texts, c.attributes().texts("pool_strings"));
    Numbered<std::string> numbered;
    pool = numbered.add(texts);
    for (const std::string& token : x->as<std::string>()) tokens.push_back(numbered.of(token));
  } else {
    BOLIDE_TRY(const std::vector<int64_t> integers, c.attributes().integers("pool_int64s"));
    BOLIDE_TRY(const Tensor wide, wide_integers(c, 0));
    Numbered<int64_t> numbered;
    pool = numbered.add(integers);
    for (const int64_t token : wide.as<int64_t>()) tokens.push_back(numbered.of(token));
  }
  BOLIDE_TRY(const Vectorizer vectorizer, vectorizer_of(c, pool));
  const int64_t rows = x->rank() == 2 ? x->dim(0) : 1;
  const Shape shape = x->rank() == 2 ? Shape{rows, vectorizer.columns} : Shape{vectorizer.columns};
  BOLIDE_TRY(Tensor * y, c.make(0, DType::kF32, shape));
  clear(*y);
  if (y->elements() == 0) return {};
  const size_t length = tokens.size() / static_cast<size_t>(rows), columns = static_cast<size_t>(vectorizer.columns);
  for (size_t row = 0; row < static_cast<size_t>(rows); ++row)
    vectorizer.count(std::span(tokens).subspan(row * length, length),
                     y->mutate<float>().subspan(row * columns, columns));
  return {};
}

}  // namespace bolide::strings
