// Draft: the graph of a zoo model while it is built. Names are those that PyTorch's exporters give: nodes after the
// module they are of, initialisers after the parameter.
//
// Thread rules: one thread.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "formats/onnx_write.h"
#include "zoo/zoo.h"

namespace bolide {

// A feature map [batch, channels, ...] and what is expected of its elements: weights and statistics behind it are
// chosen by that.
struct Signal {
  std::string name;
  int64_t channels = 0;
  double mean = 0, power = 1;  // of an element and of its square
};

struct ConvSize {
  int64_t out, kernel = 1, stride = 1, padding = 0, groups = 1;
};

class Draft {
 public:
  using Names = std::vector<std::string>;
  using Attributes = std::vector<OnnxDraftAttribute>;
  using Dims = std::vector<std::variant<int64_t, std::string>>;

  Draft(std::string_view name, const ZooOptions& options);
  int64_t opset() const { return opset_; }

  std::string input(const std::string& name, DType dtype, Dims dims);
  void output(const std::string& name, const std::string& value, Dims dims);

  // A node of a module; returns its output.
  std::string node(std::string_view scope, std::string_view op, Names in, Attributes attributes = {});
  Names node_of(std::string_view scope, std::string_view op, Names in, size_t outputs, Attributes attributes = {});

  // A trained parameter, normally distributed.
  std::string parameter(const std::string& name, std::vector<int64_t> dims, double centre, double deviation);
  // Known numbers; those of `trained_table` count as parameters.
  std::string table(const std::string& name, std::vector<int64_t> dims, std::vector<float> values);
  std::string trained_table(const std::string& name, std::vector<int64_t> dims, std::vector<float> values);
  // Constant nodes. `integer` and `number` have no dims.
  std::string integers(std::string_view scope, std::vector<int64_t> values);
  std::string integer(std::string_view scope, int64_t value);
  std::string number(std::string_view scope, float value);

  // Convolution without bias and BatchNormalization. The mean is 0 and the power 1 but for `gain`, the centre of its
  // weight.
  Signal conv_norm(const std::string& conv, const std::string& norm, const Signal& x, const ConvSize& size,
                   double gain = 1);
  // Convolution with a bias that leaves the mean 0 and the power 1.
  Signal conv(const std::string& scope, const Signal& x, const ConvSize& size);
  Signal relu(std::string_view scope, const Signal& x);
  Signal relu6(std::string_view scope, const Signal& x);
  Signal silu(std::string_view scope, const Signal& x);
  Signal add(std::string_view scope, const Signal& a, const Signal& b);
  Signal concat(std::string_view scope, const std::vector<Signal>& parts);

  // x [..., in] > [..., out]; `power` is x's. MatMul and Add, as exporters make them for three and more dims.
  std::string linear(const std::string& scope, const std::string& x, int64_t in, int64_t out, double power = 1,
                     bool has_bias = true);
  // Gemm: x [batch, in].
  std::string dense(const std::string& scope, const std::string& x, int64_t in, int64_t out, double power = 1);
  // Over the last dim, in its nine parts.
  std::string layer_norm(const std::string& scope, const std::string& x, int64_t dim, float epsilon);
  // By the error function, in its five parts; the power of its result for one of a power of 1 is kGeluPower.
  std::string gelu(std::string_view scope, const std::string& x);
  static constexpr double kGeluPower = 0.4252;
  std::string residual(std::string_view scope, const std::string& a, const std::string& b) {
    return node(scope, "Add", {a, b});
  }
  std::string transpose(std::string_view scope, const std::string& x, std::vector<int64_t> order) {
    return node(scope, "Transpose", {x}, {{"perm", std::move(order)}});
  }
  std::string reduce_mean(std::string_view scope, const std::string& x);  // over the last dim, which stays as 1
  // A shape: numbers, -1 for what is left, or kDim + i for dim i of `like`, which the graph computes.
  static constexpr int64_t kDim = -100;
  std::string shape(std::string_view scope, const std::vector<int64_t>& dims, const std::string& like);
  // x in other dims.
  std::string view(std::string_view scope, const std::string& x, const std::vector<int64_t>& dims,
                   const std::string& like);
  // Size of a dim, as a scalar.
  std::string dim_of(std::string_view scope, const std::string& x, int64_t axis);

  ZooModel take() &&;

 private:
  uint64_t key_of(const std::string& name) const;
  OnnxDraftTensor& initializer(const std::string& name, std::vector<int64_t> dims, bool trained);
  std::string conv_weight(const std::string& name, int64_t channels, const ConvSize& size, double deviation);

  ZooModel model_;
  uint64_t seed_;
  int64_t opset_;
  std::map<std::string, int, std::less<>> uses_;  // of nodes' names
};

}  // namespace bolide
