#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/memory.h"
#include "ops/gather.h"
#include "ops/moves.h"
#include "ops/number.h"

namespace bolide::gather {
namespace {

// An order of all values: NaN stands after everything else.
template <class T>
bool before(const T& a, const T& b) {
  if constexpr (std::is_same_v<T, std::string>) {
    return a < b;
  } else {
    const auto x = widen(a), y = widen(b);
    return x < y || (y != y && x == x);
  }
}

std::vector<int64_t> counting(int64_t n) {
  std::vector<int64_t> list(static_cast<size_t>(n));
  std::iota(list.begin(), list.end(), int64_t{0});
  return list;
}

// The order of `count` items of `run` elements each, equal ones in the order of their places, and for each place in
// that order whether it starts a new group.
struct Groups {
  std::vector<int64_t> order;
  std::vector<bool> starts;
};
Result<Groups> groups_of(const Tensor& items, int64_t count, int64_t run) {
  Groups groups{counting(count), std::vector<bool>(static_cast<size_t>(count), true)};
  BOLIDE_TRY(dispatch(kNumbers + Types<Bool, std::string>{}, items.dtype(), "X", [&]<class T>() -> Result<> {
    const T* data = items.as<T>().data();
    const auto less = [&](int64_t a, int64_t b) {
      for (int64_t i = 0; i < run; ++i) {
        if (before(data[a * run + i], data[b * run + i])) return true;
        if (before(data[b * run + i], data[a * run + i])) return false;
      }
      return false;
    };
    std::stable_sort(groups.order.begin(), groups.order.end(), less);
    for (size_t i = 1; i < groups.order.size(); ++i) groups.starts[i] = less(groups.order[i - 1], groups.order[i]);
    return {};
  }));
  return groups;
}

}  // namespace

Result<> run_unique(RunContext& c) {
  BOLIDE_TRY(const Tensor* given, c.tensor(0));
  BOLIDE_TRY(const int64_t sorted, c.attributes().integer("sorted", 1));
  Tensor x = *given;
  int axis = 0;
  if (c.attributes().has("axis")) {
    BOLIDE_TRY(const int64_t along, c.attributes().integer("axis", 0));
    BOLIDE_TRY(axis, axis_of(along, x.rank()));
  } else {
    x = x.reshaped({x.elements()});
  }
  std::vector<int> to_front{axis}, back;
  for (int d = 0; d < x.rank(); ++d)
    if (d != axis) to_front.push_back(d);
  for (int d = 0; d < x.rank(); ++d) back.push_back(d < axis ? d + 1 : d == axis ? 0 : d);
  BOLIDE_TRY(const Tensor items, transposed(x, to_front, c.pool()));
  const int64_t count = items.dim(0), run = items.elements() == 0 ? 0 : items.elements() / count;
  constexpr size_t kLists = 8;  // of as many numbers as there may be groups
  BOLIDE_TRY(expect_memory(count, kLists * sizeof(int64_t)));
  BOLIDE_TRY(const Groups groups, groups_of(items, count, run));

  // Groups in their order, each with the place of its first item.
  std::vector<int64_t> firsts, counts, group_of(static_cast<size_t>(count));
  for (size_t i = 0; i < groups.order.size(); ++i) {
    if (groups.starts[i]) {
      firsts.push_back(groups.order[i]);
      counts.push_back(0);
    }
    ++counts.back();
    group_of[static_cast<size_t>(groups.order[i])] = static_cast<int64_t>(firsts.size()) - 1;
  }
  std::vector<int64_t> rank = counting(static_cast<int64_t>(firsts.size()));
  if (sorted == 0)
    std::sort(rank.begin(), rank.end(),
              [&](int64_t a, int64_t b) { return firsts[static_cast<size_t>(a)] < firsts[static_cast<size_t>(b)]; });
  std::vector<int64_t> place(rank.size());
  for (size_t i = 0; i < rank.size(); ++i) place[static_cast<size_t>(rank[i])] = static_cast<int64_t>(i);

  Shape shape = items.shape();
  shape[0] = static_cast<int64_t>(firsts.size());
  BOLIDE_TRY(Tensor kept, c.scratch(x.dtype(), shape));
  const auto numbers = [&](size_t output, size_t elements) -> Result<std::span<int64_t>> {
    BOLIDE_TRY(Tensor * made, c.make(output, DType::kI64, {static_cast<int64_t>(elements)}));
    return made->mutate<int64_t>();
  };
  BOLIDE_TRY(const auto first_list, numbers(1, rank.size()));
  BOLIDE_TRY(const auto inverse, numbers(2, group_of.size()));
  BOLIDE_TRY(const auto count_list, numbers(3, rank.size()));
  for (size_t i = 0; i < rank.size(); ++i) {
    const auto group = static_cast<size_t>(rank[i]);
    copy_block(items, firsts[group] * run, kept, static_cast<int64_t>(i) * run, run);
    first_list[i] = firsts[group];
    count_list[i] = counts[group];
  }
  for (size_t i = 0; i < inverse.size(); ++i) inverse[i] = place[static_cast<size_t>(group_of[i])];
  BOLIDE_TRY(Tensor y, transposed(kept, back, c.pool()));
  c.set(0, std::move(y));
  return {};
}

Result<> run_top_k(RunContext& c) {
  BOLIDE_TRY(const Tensor* x, c.tensor(0));
  BOLIDE_TRY(const int64_t in_file, c.attributes().integer("k", -1));
  BOLIDE_TRY(const std::vector<int64_t> asked, c.integers(1, {in_file}, 1));
  BOLIDE_TRY(const int64_t given, c.attributes().integer("axis", -1));
  BOLIDE_TRY(const int64_t largest, c.attributes().integer("largest", 1));
  BOLIDE_TRY(const int axis, axis_of(given, x->rank()));
  const int64_t dim = x->dim(axis);
  if (asked.size() != 1 || asked[0] < 0 || asked[0] > dim)
    return error(Code::kInvalid, fmt::format("k {} of an axis of {}", asked.empty() ? 0 : asked[0], dim));
  const int64_t k = asked[0];
  Shape shape = x->shape();
  shape[axis] = k;
  BOLIDE_TRY(Tensor * values, c.make(0, x->dtype(), shape));
  BOLIDE_TRY(Tensor * indices, c.make(1, DType::kI64, shape));
  if (values->elements() == 0) return {};
  const Around n = around(shape, axis);
  BOLIDE_TRY(expect_memory(dim, sizeof(int64_t)));
  return dispatch(kNumbers, x->dtype(), "X", [&]<class T>() -> Result<> {
    std::vector<int64_t> order(static_cast<size_t>(dim));
    for (int64_t i = 0; i < n.before; ++i)
      for (int64_t j = 0; j < n.after; ++j) {
        const T* from = x->as<T>().data() + i * dim * n.after + j;
        std::iota(order.begin(), order.end(), int64_t{0});
        std::partial_sort(order.begin(), order.begin() + k, order.end(), [&](int64_t a, int64_t b) {
          const T p = from[a * n.after], q = from[b * n.after];
          if (before(p, q)) return largest == 0;
          if (before(q, p)) return largest != 0;
          return a < b;
        });
        for (int64_t at = 0; at < k; ++at) {
          const auto to = static_cast<size_t>((i * k + at) * n.after + j);
          values->mutate<T>()[to] = from[order[static_cast<size_t>(at)] * n.after];
          indices->mutate<int64_t>()[to] = order[static_cast<size_t>(at)];
        }
      }
    return {};
  });
}

}  // namespace bolide::gather
