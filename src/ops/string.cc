#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>
#include <set>

#include "base/memory.h"
#include "ops/moves.h"
#include "ops/ops.h"
#include "ops/string_parts.h"

namespace bolide {
namespace {

Result<const Tensor*> strings_of(const RunContext& c, size_t i) {
  BOLIDE_TRY(const Tensor* t, c.tensor(i));
  if (!t->is_string())
    return error(Code::kInvalid, fmt::format("input {} is of {}, expected strings", i, to_string(t->dtype())));
  return t;
}

Result<> run_concat(RunContext& c) {
  BOLIDE_TRY(const Tensor* a, strings_of(c, 0));
  BOLIDE_TRY(const Tensor* b, strings_of(c, 1));
  BOLIDE_TRY(const Shape shape, broadcast(a->shape(), b->shape()));
  BOLIDE_TRY(Tensor * y, c.make(0, DType::kString, shape));
  const auto from_a = a->as<std::string>(), from_b = b->as<std::string>();
  const auto to = y->mutate<std::string>();
  const Strides strides_a = broadcast_strides(a->shape(), shape), strides_b = broadcast_strides(b->shape(), shape);
  size_t bytes = 0;  // a few concatenations of a text with itself are enough to fill any memory
  for_each_offset(shape, strides_a, strides_b, [&](int64_t, int64_t at_a, int64_t at_b) {
    bytes += from_a[static_cast<size_t>(at_a)].size() + from_b[static_cast<size_t>(at_b)].size();
  });
  BOLIDE_TRY(expect_memory(static_cast<int64_t>(bytes), 1));
  for_each_offset(shape, strides_a, strides_b, [&](int64_t i, int64_t at_a, int64_t at_b) {
    to[static_cast<size_t>(i)] = from_a[static_cast<size_t>(at_a)] + from_b[static_cast<size_t>(at_b)];
  });
  return {};
}

constexpr std::string_view kBlanks = " \t\n\r\f\v";

// Between blanks, which may be many, and none at the ends; the last part of all that are allowed keeps what follows.
std::vector<std::string> split_at_blanks(std::string_view text, int64_t most) {
  std::vector<std::string> parts;
  size_t at = text.find_first_not_of(kBlanks);
  while (at != std::string_view::npos) {
    const size_t end = static_cast<int64_t>(parts.size()) < most ? text.find_first_of(kBlanks, at) : text.npos;
    parts.emplace_back(text.substr(at, end - at));
    at = end == text.npos ? end : text.find_first_not_of(kBlanks, end);
  }
  return parts;
}

std::vector<std::string> split_at(std::string_view text, std::string_view delimiter, int64_t most) {
  std::vector<std::string> parts;
  for (size_t at = 0;;) {
    const size_t end = static_cast<int64_t>(parts.size()) < most ? text.find(delimiter, at) : text.npos;
    parts.emplace_back(text.substr(at, end - at));
    if (end == text.npos) return parts;
    at = end + delimiter.size();
  }
}

Result<> run_split(RunContext& c) {
  BOLIDE_TRY(const Tensor* x, strings_of(c, 0));
  BOLIDE_TRY(const std::string delimiter, c.attributes().text("delimiter", ""));
  BOLIDE_TRY(const int64_t most, c.attributes().integer("maxsplit", INT64_MAX));
  std::vector<std::vector<std::string>> all;
  size_t widest = 0;
  for (const std::string& text : x->as<std::string>()) {
    all.push_back(delimiter.empty() ? split_at_blanks(text, most) : split_at(text, delimiter, most));
    widest = std::max(widest, all.back().size());
  }
  std::vector<int64_t> dims(x->shape().span().begin(), x->shape().span().end());
  dims.push_back(static_cast<int64_t>(widest));
  BOLIDE_TRY(const Shape shape, shape_of(dims));
  BOLIDE_TRY(Tensor * y, c.make(0, DType::kString, shape));
  BOLIDE_TRY(Tensor * counts, c.make(1, DType::kI64, x->shape()));
  for (size_t i = 0; i < all.size(); ++i) {
    std::move(all[i].begin(), all[i].end(), y->mutate<std::string>().begin() + static_cast<int64_t>(i * widest));
    counts->mutate<int64_t>()[i] = static_cast<int64_t>(all[i].size());
  }
  return {};
}

// Bytes that are no UTF-8 stay as they are.
std::string with_case(std::string_view text, bool upper) {
  std::string changed;
  for (size_t at = 0; at < text.size();) {
    utf8proc_int32_t point = 0;
    const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data()) + at;
    const auto length = utf8proc_iterate(bytes, static_cast<utf8proc_ssize_t>(text.size() - at), &point);
    if (length <= 0) {
      changed += text[at++];
      continue;
    }
    utf8proc_uint8_t encoded[4];
    const auto n = utf8proc_encode_char(upper ? utf8proc_toupper(point) : utf8proc_tolower(point), encoded);
    changed.append(reinterpret_cast<const char*>(encoded), static_cast<size_t>(n));
    at += static_cast<size_t>(length);
  }
  return changed;
}

Result<> run_normalizer(RunContext& c) {
  BOLIDE_TRY(const Tensor* x, strings_of(c, 0));
  BOLIDE_TRY(const std::string action, c.attributes().text("case_change_action", "NONE"));
  BOLIDE_TRY(const int64_t sensitive, c.attributes().integer("is_case_sensitive", 0));
  BOLIDE_TRY(const std::vector<std::string> stopwords, c.attributes().texts("stopwords"));
  if (action != "NONE" && action != "LOWER" && action != "UPPER")
    return error(Code::kInvalid, fmt::format("case_change_action {:.40}", action));
  if (x->rank() != 1 && !(x->rank() == 2 && x->dim(0) == 1))
    return error(Code::kInvalid, fmt::format("a tensor of {}, expected [C] or [1, C]", to_string(x->shape())));
  std::set<std::string> stops;
  for (const std::string& word : stopwords) stops.insert(sensitive != 0 ? word : with_case(word, false));
  std::vector<std::string> kept;
  for (const std::string& text : x->as<std::string>()) {
    if (!stops.empty() && stops.contains(sensitive != 0 ? text : with_case(text, false))) continue;
    kept.push_back(action == "NONE" ? text : with_case(text, action == "UPPER"));
  }
  if (kept.empty()) kept.emplace_back();
  const auto count = static_cast<int64_t>(kept.size());
  c.set(0, Tensor::strings(x->rank() == 1 ? Shape{count} : Shape{1, count}, std::move(kept)));
  return {};
}

constexpr OpDef kOps[] = {
    {.domain = "", .name = "StringConcat", .since = 20, .run = run_concat},
    {.domain = "", .name = "StringSplit", .since = 20, .run = run_split},
    {.domain = "", .name = "StringNormalizer", .since = 10, .run = run_normalizer},
    {.domain = "", .name = "RegexFullMatch", .since = 20, .run = strings::run_regex_full_match},
    {.domain = "", .name = "TfIdfVectorizer", .since = 9, .run = strings::run_tf_idf},
};

}  // namespace

std::span<const OpDef> string_ops() { return kOps; }

}  // namespace bolide
