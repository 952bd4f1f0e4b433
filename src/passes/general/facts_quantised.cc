#include "ir/op_def.h"
#include "passes/general/facts.h"

namespace bolide {

// Ops on 8-bit codes.
Facts FactsTable::quantised(const Node& node, const Generic& op) {
  const std::string_view name = op.def->name;
  const auto in = [&](size_t i) -> const Facts& { return (*this)[i < node.in.size() ? node.in[i] : kNoValue]; };
  const Facts& x = in(0);
  Facts to;
  if (name == "QConv" || name == "QMatMul") {
    to.dtype = in(13).dtype != DType::kNone ? in(13).dtype : in(7).dtype;
    if (node.in.size() < 7 || node.in[6] == kNoValue) to.dtype = DType::kF32;
  } else {
    to.dtype = name == "QLookUp" ? in(1).dtype : x.dtype;
  }
  const auto products = [&](const Facts& w, bool transposed) {
    if (x.rank() < 2 || w.rank() < 2) return;
    if (w.rank() > 2 && w.rank() != x.rank()) return;
    to.dims = x.dims;
    to.dims->back() = (*w.dims)[w.dims->size() - (transposed ? 2 : 1)];
  };
  if (name == "QMatMul") {
    const auto transposed = op.attributes->integer("transB", 0);
    if (transposed) products(in(3), *transposed != 0);
  } else if (name == "MatMulIntegerToFloat" || name == "MatMulInteger") {
    to.dtype = name == "MatMulInteger" ? DType::kI32 : in(2).dtype;
    products(in(1), false);
  } else if (name == "QLinearMatMul") {
    to.dtype = in(7).dtype;
    products(in(3), false);
  } else if (name == "QConv") {
    if (x.rank() < 3 || in(3).rank() != x.rank()) return to;
    to.dims = x.dims;
    for (int i = 1; i + 1 < x.rank(); ++i) (*to.dims)[static_cast<size_t>(i)] = fresh();
    to.dims->back() = (*in(3).dims)[0];
  } else if (name == "QLinearConv") {
    to.dtype = in(7).dtype;
    if (x.rank() < 3 || in(3).rank() != x.rank()) return to;
    to.dims = x.dims;
    (*to.dims)[1] = (*in(3).dims)[0];
    for (size_t i = 2; i < to.dims->size(); ++i) (*to.dims)[i] = fresh();
  } else if (name == "QMaxPool") {
    to.dims = x.dims;
    for (int i = 1; i + 1 < x.rank(); ++i) (*to.dims)[static_cast<size_t>(i)] = fresh();
  } else if (name == "QLookUp") {
    to.dims = x.dims;
  } else if (name == "QLinearAdd" && node.in.size() > 3) {
    if (x.dims && in(3).dims && *x.dims == *in(3).dims) to.dims = x.dims;
  } else if (name == "QLinearGlobalAveragePool") {
    const auto last = op.attributes->integer("channels_last", 0);
    if (!last || x.rank() < 3) return to;
    to.dims = x.dims;
    for (int i = 1; i + 1 < x.rank(); ++i) (*to.dims)[static_cast<size_t>(*last != 0 ? i : i + 1)] = 1;
  }
  return to;
}

}  // namespace bolide
