// What the ops of ai.onnx.ml share, and the kernels of ml_tree.cc and ml_linear.cc, whose rows are in ml.cc.
#pragma once

#include <string>
#include <vector>

#include "ir/op_def.h"

namespace bolide::ml {

// Input 0 as [rows, columns]; a vector is one row. kInvalid: it is none.
struct Matrix {
  int64_t rows = 0, columns = 0;
  std::vector<double> values;

  std::span<const double> row(int64_t i) const {
    return std::span(values).subspan(static_cast<size_t>(i * columns), static_cast<size_t>(columns));
  }
};
Result<Matrix> matrix_of(const RunContext& c);

enum class PostTransform : uint8_t { kNone, kSoftmax, kLogistic, kSoftmaxZero, kProbit };
Result<PostTransform> post_transform_of(const RunContext& c);  // of the attribute's text
void post_transform(PostTransform how, std::span<double> scores);

// Scores of both classes from one that tells them apart: a probability, or a distance from 0. The specification is
// silent; as ONNX Runtime does it, no softmax applies.
std::vector<double> split_in_two(double score, bool is_probability, PostTransform how);

// Labels of classes: strings or integers, the only attribute of the two that has some. kInvalid: none has.
Result<Tensor> class_labels(const RunContext& c, std::string_view strings, std::string_view integers);
// Outputs 0 and 1: the label of each row, whose place is given, and scores [rows, columns].
Result<> set_classes(RunContext& c, const Tensor& labels, std::span<const int64_t> places,
                     const std::vector<double>& scores);
// Output i: f32 or `dtype` [rows, columns] of scores.
Result<> set_scores(RunContext& c, size_t i, DType dtype, int64_t rows, const std::vector<double>& scores);

Result<> run_tree_ensemble(RunContext& c);
Result<> run_tree_regressor(RunContext& c);
Result<> run_tree_classifier(RunContext& c);
Result<> run_linear_regressor(RunContext& c);
Result<> run_linear_classifier(RunContext& c);
Result<> run_svm_regressor(RunContext& c);

}  // namespace bolide::ml
