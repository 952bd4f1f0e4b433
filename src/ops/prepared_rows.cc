#include "ops/prepared_rows.h"

#include <algorithm>
#include <array>

namespace bolide {

bool finish_of(std::string_view name, const isa::RowFunctions& rows, FinishRow& to) {
  constexpr std::array<std::pair<std::string_view, isa::RowUnary>, 7> kNames = {{{"Relu", isa::kRowRelu},
                                                                                 {"Sigmoid", isa::kRowSigmoid},
                                                                                 {"Tanh", isa::kRowTanh},
                                                                                 {"Gelu", isa::kRowGelu},
                                                                                 {"GeluTanh", isa::kRowGeluTanh},
                                                                                 {"Silu", isa::kRowSilu},
                                                                                 {"HardSwish", isa::kRowHardSwish}}};
  to = nullptr;
  if (name.empty()) return true;
  for (const auto& [known, kind] : kNames)
    if (known == name) to = rows.finish[kind];
  return to != nullptr;
}

void for_row_ranges(Workers& workers, int64_t rows, int64_t elements_per_row,
                    FunctionRef<void(int64_t begin, int64_t end)> f) {
  constexpr int64_t kElements = 8192;
  if (rows < 1) return;
  const int64_t least = std::max<int64_t>(1, kElements / std::max<int64_t>(1, elements_per_row));
  const int64_t step = std::max(least, (rows + 4 * workers.threads() - 1) / (4 * workers.threads()));
  workers.run((rows + step - 1) / step,
              [&](int64_t chunk, int) { f(chunk * step, std::min(rows, (chunk + 1) * step)); });
}

}  // namespace bolide
