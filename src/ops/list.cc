#include <algorithm>
#include <map>
#include <vector>

#include "ops/ops.h"

namespace bolide {
namespace {

using Key = std::pair<std::string_view, std::string_view>;
// Rows of a name, oldest first.
using Table = std::map<Key, std::vector<const OpDef*>>;

Table make_table() {
  Table table;
  for (const std::span<const OpDef> group :
       {elementwise_ops(), activation_ops(), cast_ops(),        quantise_ops(),  layout_ops(),        gather_ops(),
        reduce_ops(),      matrix_ops(),     convolution_ops(), pool_ops(),      normalisation_ops(), recurrent_ops(),
        attention_ops(),   image_ops(),      signal_ops(),      random_ops(),    sequence_ops(),      control_ops(),
        string_ops(),      ml_ops(),         training_ops(),    microsoft_ops(), channels_last_ops()})
    for (const OpDef& row : group) table[{row.domain, row.name}].push_back(&row);
  for (auto& [key, rows] : table)
    std::sort(rows.begin(), rows.end(), [](const OpDef* a, const OpDef* b) { return a->since < b->since; });
  return table;
}

}  // namespace

const OpDef* find_op(std::string_view domain, std::string_view name, int64_t version) {
  static const Table table = make_table();
  const auto it = table.find({domain, name});
  if (it == table.end()) return nullptr;
  const OpDef* found = nullptr;
  for (const OpDef* row : it->second)
    if (row->since <= version) found = row;
  return found;
}

}  // namespace bolide
