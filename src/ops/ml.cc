#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <unordered_map>

#include "ops/ml_parts.h"
#include "ops/moves.h"
#include "ops/number.h"
#include "ops/ops.h"

namespace bolide {
namespace {

Result<> run_array_feature_extractor(RunContext& c) {
  BOLIDE_TRY(const Tensor* x, c.tensor(0));
  BOLIDE_TRY(const Tensor indices, wide_integers(c, 1));
  if (x->rank() < 1) return error(Code::kInvalid, "X has no dims");
  const int64_t dim = x->dim(-1), count = indices.elements();
  for (const int64_t index : indices.as<int64_t>())
    if (index < 0 || index >= dim) return error(Code::kInvalid, fmt::format("Y: index {} of {}", index, dim));
  Shape shape = x->rank() == 1 ? Shape{1, count} : x->shape();
  shape[-1] = count;
  BOLIDE_TRY(Tensor * y, c.make(0, x->dtype(), shape));
  if (y->elements() == 0) return {};
  for (int64_t row = 0, to = 0; row < x->elements() / dim; ++row)
    for (const int64_t index : indices.as<int64_t>()) copy_block(*x, row * dim + index, *y, to++, 1);
  return {};
}

Result<> run_binarizer(RunContext& c) {
  BOLIDE_TRY(const Tensor* x, c.tensor(0));
  BOLIDE_TRY(const float threshold, c.attributes().number("threshold", 0));
  BOLIDE_TRY(Tensor * y, c.make(0, x->dtype(), x->shape()));
  return dispatch(kNumbers, x->dtype(), "X", [&]<class T>() -> Result<> {
    for (size_t i = 0; i < x->as<T>().size(); ++i)
      y->mutate<T>()[i] = narrow<T>(
          static_cast<Wide<T>>(static_cast<double>(widen(x->as<T>()[i])) > static_cast<double>(threshold) ? 1 : 0));
    return {};
  });
}

// Keys to places in a list. Numbers are found by value, NaN by NaN.
class Keys {
 public:
  static Result<Keys> of(const Tensor& list) {
    Keys keys;
    if (list.is_string()) {
      int64_t place = 0;
      for (const std::string& text : list.as<std::string>()) keys.texts_.try_emplace(text, place++);
      return keys;
    }
    if (list.dtype() == DType::kI64) {
      int64_t place = 0;
      for (const int64_t value : list.as<int64_t>()) keys.integers_.try_emplace(value, place++);
      return keys;
    }
    BOLIDE_TRY(const std::vector<double> values, doubles_of(list));
    int64_t place = 0;
    for (const double value : values) {
      if (std::isnan(value))
        keys.nan_ = place++;
      else
        keys.numbers_.try_emplace(value, place++);
    }
    return keys;
  }
  // The place of each element of x, -1 if it is no key.
  Result<std::vector<int64_t>> find(const Tensor& x) const {
    std::vector<int64_t> places;
    const auto look = [&](const auto& table, const auto& key) {
      const auto it = table.find(key);
      places.push_back(it == table.end() ? -1 : it->second);
    };
    if (x.is_string()) {
      for (const std::string& text : x.as<std::string>()) look(texts_, text);
    } else if (x.dtype() == DType::kI64) {
      for (const int64_t value : x.as<int64_t>()) look(integers_, value);
    } else {
      BOLIDE_TRY(const std::vector<double> values, doubles_of(x));
      for (const double value : values) {
        if (std::isnan(value))
          places.push_back(nan_);
        else
          look(numbers_, value);
      }
    }
    return places;
  }

 private:
  std::unordered_map<std::string, int64_t> texts_;
  std::unordered_map<int64_t, int64_t> integers_;
  std::map<double, int64_t> numbers_;
  int64_t nan_ = -1;
};

// The list that is there of <name>_strings, _int64s, _floats and _tensor.
Result<Tensor> list_of(const Attributes& a, const std::string& name) {
  if (const Attributes::Any* any = a.find(name + "_tensor"))
    if (const Tensor* tensor = std::get_if<Tensor>(any)) return *tensor;
  BOLIDE_TRY(std::vector<std::string> texts, a.texts(name + "_strings"));
  BOLIDE_TRY(const std::vector<int64_t> integers, a.integers(name + "_int64s"));
  BOLIDE_TRY(const std::vector<float> floats, a.numbers(name + "_floats"));
  if (!texts.empty()) {
    const auto count = static_cast<int64_t>(texts.size());
    return Tensor::strings({count}, std::move(texts));
  }
  if (!integers.empty()) return Tensor::vector<int64_t>(DType::kI64, integers);
  if (!floats.empty()) return Tensor::vector<float>(DType::kF32, floats);
  return error(Code::kInvalid, fmt::format("has no {}", name));
}

// What stands for keys that are not there.
Result<Tensor> default_of(const Attributes& a, DType dtype) {
  if (const Attributes::Any* any = a.find("default_tensor"))
    if (const Tensor* tensor = std::get_if<Tensor>(any)) {
      if (tensor->dtype() != dtype || tensor->elements() != 1)
        return error(Code::kInvalid,
                     fmt::format("default_tensor is {}{}, expected one element of {}", to_string(tensor->dtype()),
                                 to_string(tensor->shape()), to_string(dtype)));
      return *tensor;
    }
  if (dtype == DType::kString) {
    BOLIDE_TRY(std::string text, a.text("default_string", "_Unused"));
    return Tensor::strings({1}, {std::move(text)});
  }
  BOLIDE_TRY(const int64_t integer, a.integer("default_int64", -1));
  BOLIDE_TRY(const float number, a.number("default_float", -0.0F));
  BOLIDE_TRY(Tensor value, Tensor::make(dtype, {1}));
  BOLIDE_TRY(dispatch(kNumbers, dtype, "values", [&]<class T>() -> Result<> {
    if constexpr (std::is_integral_v<T>)
      value.mutate<T>()[0] = static_cast<T>(integer);
    else
      value.mutate<T>()[0] = narrow<T>(static_cast<Wide<T>>(number));
    return {};
  }));
  return value;
}

Result<> map_labels(RunContext& c, const Tensor& keys, const Tensor& values) {
  BOLIDE_TRY(const Tensor* x, c.tensor(0));
  if (keys.elements() != values.elements())
    return error(Code::kInvalid, fmt::format("{} keys and {} values", keys.elements(), values.elements()));
  if (x->is_string() != keys.is_string())
    return error(Code::kInvalid, fmt::format("X is of {}, keys of {}", to_string(x->dtype()), to_string(keys.dtype())));
  BOLIDE_TRY(const Tensor otherwise, default_of(c.attributes(), values.dtype()));
  BOLIDE_TRY(const Keys table, Keys::of(keys));
  BOLIDE_TRY(const std::vector<int64_t> places, table.find(*x));
  BOLIDE_TRY(Tensor * y, c.make(0, values.dtype(), x->shape()));
  for (size_t i = 0; i < places.size(); ++i)
    copy_block(places[i] < 0 ? otherwise : values, std::max<int64_t>(places[i], 0), *y, static_cast<int64_t>(i), 1);
  return {};
}

Result<> run_label_encoder(RunContext& c) {
  BOLIDE_TRY(const Tensor keys, list_of(c.attributes(), "keys"));
  BOLIDE_TRY(const Tensor values, list_of(c.attributes(), "values"));
  return map_labels(c, keys, values);
}

// A list of strings and one of integers; the input's type says which are the keys.
Result<> map_either_way(RunContext& c, const Tensor& texts, const Tensor& integers) {
  BOLIDE_TRY(const Tensor* x, c.tensor(0));
  return x->is_string() ? map_labels(c, texts, integers) : map_labels(c, integers, texts);
}

// The first version: strings and their places.
Result<> run_label_encoder_of_classes(RunContext& c) {
  BOLIDE_TRY(std::vector<std::string> classes, c.attributes().texts("classes_strings"));
  std::vector<int64_t> places;
  for (size_t i = 0; i < classes.size(); ++i) places.push_back(static_cast<int64_t>(i));
  const auto count = static_cast<int64_t>(classes.size());
  return map_either_way(c, Tensor::strings({count}, std::move(classes)), Tensor::vector<int64_t>(DType::kI64, places));
}

Result<> run_category_mapper(RunContext& c) {
  BOLIDE_TRY(std::vector<std::string> texts, c.attributes().texts("cats_strings"));
  BOLIDE_TRY(const std::vector<int64_t> integers, c.attributes().integers("cats_int64s"));
  const auto count = static_cast<int64_t>(texts.size());
  return map_either_way(c, Tensor::strings({count}, std::move(texts)), Tensor::vector<int64_t>(DType::kI64, integers));
}

Result<> run_one_hot_encoder(RunContext& c) {
  BOLIDE_TRY(const Tensor* x, c.tensor(0));
  BOLIDE_TRY(const Tensor categories, list_of(c.attributes(), "cats"));
  BOLIDE_TRY(const int64_t zeros, c.attributes().integer("zeros", 1));
  if (x->is_string() != categories.is_string())
    return error(Code::kInvalid,
                 fmt::format("X is of {}, categories of {}", to_string(x->dtype()), to_string(categories.dtype())));
  Tensor list = categories;
  if (!x->is_string() && x->dtype() != DType::kI64) {  // found as floats
    BOLIDE_TRY(const std::vector<double> values, doubles_of(categories));
    list = Tensor::vector<double>(DType::kF64, values);
  }
  BOLIDE_TRY(const Keys keys, Keys::of(list));
  BOLIDE_TRY(const std::vector<int64_t> places, keys.find(*x));
  std::vector<int64_t> dims(x->shape().span().begin(), x->shape().span().end());
  dims.push_back(list.elements());
  BOLIDE_TRY(const Shape shape, shape_of(dims));
  BOLIDE_TRY(Tensor * y, c.make(0, DType::kF32, shape));
  clear(*y);
  for (size_t i = 0; i < places.size(); ++i) {
    if (places[i] < 0 && zeros == 0) return error(Code::kInvalid, fmt::format("element {} of X is no category", i));
    if (places[i] >= 0)
      y->mutate<float>()[i * static_cast<size_t>(list.elements()) + static_cast<size_t>(places[i])] = 1;
  }
  return {};
}

// One number for all columns, or one for each.
Result<> check_columns(std::string_view name, size_t count, int64_t columns) {
  if (count == 1 || static_cast<int64_t>(count) == columns) return {};
  return error(Code::kInvalid, fmt::format("{} has {} numbers for {} columns", name, count, columns));
}

Result<> run_scaler(RunContext& c) {
  BOLIDE_TRY(const ml::Matrix x, ml::matrix_of(c));
  BOLIDE_TRY(const std::vector<float> offset, c.attributes().numbers("offset", {0}));
  BOLIDE_TRY(const std::vector<float> scale, c.attributes().numbers("scale", {1}));
  BOLIDE_TRY(check_columns("offset", offset.size(), x.columns));
  BOLIDE_TRY(check_columns("scale", scale.size(), x.columns));
  BOLIDE_TRY(Tensor * y, c.make(0, DType::kF32, c.value(0)->tensor()->shape()));
  for (size_t i = 0; i < x.values.size(); ++i) {
    const size_t column = i % static_cast<size_t>(x.columns);
    y->mutate<float>()[i] = (static_cast<float>(x.values[i]) - offset[offset.size() == 1 ? 0 : column]) *
                            scale[scale.size() == 1 ? 0 : column];
  }
  return {};
}

Result<> run_normalizer(RunContext& c) {
  BOLIDE_TRY(const ml::Matrix x, ml::matrix_of(c));
  BOLIDE_TRY(const std::string norm, c.attributes().text("norm", "MAX"));
  if (norm != "MAX" && norm != "L1" && norm != "L2") return error(Code::kInvalid, fmt::format("norm {:.40}", norm));
  BOLIDE_TRY(Tensor * y, c.make(0, DType::kF32, c.value(0)->tensor()->shape()));
  float* to = y->mutate<float>().data();
  for (int64_t row = 0; row < x.rows; ++row) {
    double size = norm == "MAX" ? -INFINITY : 0;
    for (const double v : x.row(row))
      size = norm == "MAX" ? std::max(size, v) : size + (norm == "L1" ? std::abs(v) : v * v);
    if (norm == "L2") size = std::sqrt(size);
    for (const double v : x.row(row)) *to++ = static_cast<float>(size == 0 ? v : v / size);
  }
  return {};
}

Result<> run_imputer(RunContext& c) {
  BOLIDE_TRY(const Tensor* given, c.tensor(0));
  BOLIDE_TRY(const ml::Matrix x, ml::matrix_of(c));
  BOLIDE_TRY(const std::vector<float> floats, c.attributes().numbers("imputed_value_floats"));
  BOLIDE_TRY(const std::vector<int64_t> integers, c.attributes().integers("imputed_value_int64s"));
  BOLIDE_TRY(const float replaced_float, c.attributes().number("replaced_value_float", 0));
  BOLIDE_TRY(const int64_t replaced_integer, c.attributes().integer("replaced_value_int64", 0));
  const bool has_floats = !floats.empty();
  const size_t count = has_floats ? floats.size() : integers.size();
  BOLIDE_TRY(check_columns("imputed_value", count, x.columns));
  BOLIDE_TRY(Tensor * y, c.make(0, given->dtype(), given->shape()));
  const double replaced = has_floats ? static_cast<double>(replaced_float) : static_cast<double>(replaced_integer);
  return dispatch(kNumbers, given->dtype(), "X", [&]<class T>() -> Result<> {
    for (size_t i = 0; i < x.values.size(); ++i) {
      const size_t at = count == 1 ? 0 : i % static_cast<size_t>(x.columns);
      const bool is_missing = std::isnan(replaced) ? std::isnan(x.values[i]) : x.values[i] == replaced;
      y->mutate<T>()[i] = !is_missing  ? given->as<T>()[i]
                          : has_floats ? narrow<T>(static_cast<Wide<T>>(floats[at]))
                                       : narrow<T>(static_cast<Wide<T>>(integers[at]));
    }
    return {};
  });
}

Result<> run_feature_vectorizer(RunContext& c) {
  BOLIDE_TRY(const std::vector<int64_t> widths, c.attributes().integers("inputdimensions"));
  if (widths.size() != c.inputs() || widths.empty())
    return error(Code::kInvalid, fmt::format("{} inputdimensions for {} inputs", widths.size(), c.inputs()));
  int64_t rows = -1, columns = 0;
  for (size_t i = 0; i < widths.size(); ++i) {
    BOLIDE_TRY(const Tensor* x, c.tensor(i));
    const int64_t mine = x->rank() == 2 || x->rank() == 1 ? x->dim(0) : -1;
    if (widths[i] < 0 || widths[i] > 1 << 28 || mine < 0 || (rows >= 0 && rows != mine))
      return error(Code::kInvalid,
                   fmt::format("input {} is {}, of which {} columns", i, to_string(x->shape()), widths[i]));
    rows = mine;
    columns += widths[i];
  }
  BOLIDE_TRY(Tensor * y, c.make(0, DType::kF32, {rows, columns}));
  clear(*y);
  int64_t at = 0;
  for (size_t i = 0; i < widths.size(); ++i) {
    BOLIDE_TRY(const std::vector<double> values, doubles_of(c, i));
    const int64_t own = rows == 0 ? 0 : static_cast<int64_t>(values.size()) / rows;
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t k = 0; k < std::min(own, widths[i]); ++k)
        y->mutate<float>()[static_cast<size_t>(row * columns + at + k)] =
            static_cast<float>(values[static_cast<size_t>(row * own + k)]);
    at += widths[i];
  }
  return {};
}

constexpr std::string_view kMl = "ai.onnx.ml";

constexpr OpDef kOps[] = {
    {.domain = kMl, .name = "ArrayFeatureExtractor", .since = 1, .run = run_array_feature_extractor},
    {.domain = kMl, .name = "Binarizer", .since = 1, .run = run_binarizer},
    {.domain = kMl, .name = "CategoryMapper", .since = 1, .run = run_category_mapper},
    {.domain = kMl, .name = "FeatureVectorizer", .since = 1, .run = run_feature_vectorizer},
    {.domain = kMl, .name = "Imputer", .since = 1, .run = run_imputer},
    {.domain = kMl, .name = "LabelEncoder", .since = 1, .run = run_label_encoder_of_classes},
    {.domain = kMl, .name = "LabelEncoder", .since = 2, .run = run_label_encoder},
    {.domain = kMl, .name = "LinearClassifier", .since = 1, .run = ml::run_linear_classifier},
    {.domain = kMl, .name = "LinearRegressor", .since = 1, .run = ml::run_linear_regressor},
    {.domain = kMl, .name = "Normalizer", .since = 1, .run = run_normalizer},
    {.domain = kMl, .name = "OneHotEncoder", .since = 1, .run = run_one_hot_encoder},
    {.domain = kMl, .name = "Scaler", .since = 1, .run = run_scaler},
    {.domain = kMl, .name = "SVMRegressor", .since = 1, .run = ml::run_svm_regressor},
    {.domain = kMl, .name = "TreeEnsemble", .since = 5, .run = ml::run_tree_ensemble},
    {.domain = kMl, .name = "TreeEnsembleClassifier", .since = 1, .run = ml::run_tree_classifier},
    {.domain = kMl, .name = "TreeEnsembleRegressor", .since = 1, .run = ml::run_tree_regressor},
};

}  // namespace

std::span<const OpDef> ml_ops() { return kOps; }

}  // namespace bolide
