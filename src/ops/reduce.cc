// Reduce*: one pass over x in its order, with an accumulator for each element of the result, of 64 bits.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "base/memory.h"
#include "ops/cast.h"
#include "ops/elementwise.h"
#include "ops/ops.h"
#include "ops/prepared_rows.h"
#include "ops/reduce.h"

namespace bolide {
namespace {

constexpr int64_t kBlock = 512;

enum class Fold : uint8_t { kSum, kProduct, kMax, kMin };
enum class Map : uint8_t { kNone, kAbs, kSquare, kExp };  // kExp: exp(x - the largest of its set)
enum class Finish : uint8_t { kNone, kMean, kRoot, kLog };
struct Reduction {
  Fold fold;
  Map map = Map::kNone;
  Finish finish = Finish::kNone;
};

// What is reduced: x of `shape` to `kept`, which has a 1 for each reduced dim.
struct Plan {
  Shape kept, result;
  Walk walk;         // input 0: x, input 1: the result
  int64_t each = 1;  // elements of x for one of the result
};

Result<Plan> plan_of(RunContext& c, const Tensor& x) {
  BOLIDE_TRY(const int64_t keep, c.attributes().integer("keepdims", 1));
  BOLIDE_TRY(const int64_t none_is_none, c.attributes().integer("noop_with_empty_axes", 0));
  BOLIDE_TRY(std::vector<int64_t> axes, c.attributes().integers("axes"));
  BOLIDE_TRY(axes, c.integers(1, std::move(axes), kRankMax));
  BOLIDE_TRY(auto reduced, axes_of(axes, x.rank()));
  if (axes.empty() && none_is_none == 0) reduced.fill(true);
  Plan plan;
  plan.kept = x.shape();
  for (int i = 0; i < x.rank(); ++i) {
    if (reduced[static_cast<size_t>(i)]) {
      if (x.elements() != 0) plan.each *= x.dim(i);
      if (x.dim(i) == 0) plan.each = 0;
      plan.kept[i] = 1;
    }
    if (!reduced[static_cast<size_t>(i)] || keep != 0)
      plan.result.dims[static_cast<size_t>(plan.result.rank++)] = plan.kept[i];
  }
  plan.walk = walk_of(x.shape(), {&x.shape(), &plan.kept});
  return plan;
}

template <class A>
A multiply(A a, A b) {
  if constexpr (std::integral<A>)
    return static_cast<A>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));  // wraps
  else
    return a * b;
}
template <class A>
A add(A a, A b) {
  if constexpr (std::integral<A>)
    return static_cast<A>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  else
    return a + b;
}

template <class A>
void map_block(Map map, A* x, int64_t n, const A* most, int64_t step) {
  switch (map) {
    case Map::kNone: return;
    case Map::kAbs:
      for (int64_t i = 0; i < n; ++i) x[i] = x[i] < 0 ? multiply(x[i], static_cast<A>(-1)) : x[i];
      return;
    case Map::kSquare:
      for (int64_t i = 0; i < n; ++i) x[i] = multiply(x[i], x[i]);
      return;
    case Map::kExp:
      if constexpr (std::floating_point<A>)
        for (int64_t i = 0; i < n; ++i) x[i] = std::exp(x[i] - most[i * step]);
      return;
  }
}

template <class A, class F>
void fold_block(const A* x, int64_t n, A* to, int64_t step, F f) {
  if (step != 0) {
    for (int64_t i = 0; i < n; ++i) to[i] = f(to[i], x[i]);
    return;
  }
  A sum = *to;
  for (int64_t i = 0; i < n; ++i) sum = f(sum, x[i]);
  *to = sum;
}

// most: for Map::kExp.
template <class A>
void fold_all(const Tensor& x, const Plan& plan, const Reduction& r, Map map, const std::vector<A>& most,
              std::vector<A>& to, Workers& workers) {
  if (x.elements() == 0) return;
  // Threads share the first dim if the result has it.
  const bool shared = plan.walk.shape.rank > 1 && plan.walk.strides[1][0] != 0;
  const int64_t parts = shared ? plan.walk.shape[0] : 1;
  const int64_t part = x.elements() / parts;
  const int64_t at_a_time = std::max<int64_t>(1, 16384 / part);
  workers.run((parts + at_a_time - 1) / at_a_time, [&](int64_t chunk, int) {
    const int64_t first = chunk * at_a_time, last = std::min(parts, first + at_a_time);
    for_each_piece(plan.walk, first * part, last * part, [&](const Piece& p) {
      std::array<A, kBlock> block;
      for (int64_t begin = 0; begin < p.n; begin += kBlock) {
        const int64_t n = std::min(kBlock, p.n - begin), step = p.step[1];
        const auto at = static_cast<size_t>(p.in[1] + begin * step);
        A* const out = to.data() + at;
        load(x, p.in[0] + begin, n, block.data());
        map_block(map, block.data(), n, most.empty() ? nullptr : most.data() + at, step);
        switch (r.fold) {
          case Fold::kSum: fold_block(block.data(), n, out, step, [](A a, A b) { return add(a, b); }); break;
          case Fold::kProduct: fold_block(block.data(), n, out, step, [](A a, A b) { return multiply(a, b); }); break;
          case Fold::kMax:
            fold_block(block.data(), n, out, step, [](A a, A b) { return b > a || b != b ? b : a; });
            break;
          case Fold::kMin:
            fold_block(block.data(), n, out, step, [](A a, A b) { return b < a || b != b ? b : a; });
            break;
        }
      }
    });
  });
}

// The least and the largest number of a type.
template <class A>
std::pair<A, A> range_of(DType dtype) {
  if constexpr (std::floating_point<A>) {
    return {-std::numeric_limits<A>::infinity(), std::numeric_limits<A>::infinity()};
  } else {
    if (dtype == DType::kBool) return {0, 1};
    std::pair<A, A> range{0, 0};
    const auto done = dispatch(kIntegers, dtype, "x", [&]<class T>() -> Result<> {
      range = {static_cast<A>(std::numeric_limits<T>::min()), static_cast<A>(std::numeric_limits<T>::max())};
      return {};
    });
    return done ? range : std::pair<A, A>{0, 0};
  }
}

template <class A>
Result<Tensor> reduce_as(RunContext& c, const Tensor& x, const Plan& plan, const Reduction& r) {
  BOLIDE_TRY(Tensor out, c.scratch(x.dtype(), plan.result));
  const auto [least, largest] = range_of<A>(x.dtype());
  const A empty = r.fold == Fold::kSum       ? A(0)
                  : r.fold == Fold::kProduct ? A(1)
                  : r.fold == Fold::kMax     ? least
                                             : largest;
  BOLIDE_TRY(expect_memory(out.elements(), (r.map == Map::kExp ? 2 : 1) * sizeof(A)));
  std::vector<A> to(static_cast<size_t>(out.elements()), empty), most;
  if (r.map == Map::kExp) {
    most.assign(to.size(), least);
    fold_all<A>(x, plan, {Fold::kMax}, Map::kNone, {}, most, c.workers());
    if constexpr (std::floating_point<A>)
      for (A& m : most)
        if (!std::isfinite(m)) m = 0;
  }
  fold_all(x, plan, r, r.map, most, to, c.workers());
  for (size_t i = 0; i < to.size(); ++i) {
    if (r.finish == Finish::kMean) {
      if constexpr (std::floating_point<A>)
        to[i] /= static_cast<A>(plan.each);
      else
        to[i] = plan.each == 0 ? A(0) : to[i] / static_cast<A>(plan.each);
    }
    if constexpr (std::floating_point<A>) {
      if (r.finish == Finish::kRoot) to[i] = std::sqrt(to[i]);
      if (r.finish == Finish::kLog) to[i] = std::log(to[i]) + (most.empty() ? 0 : most[i]);
    }
  }
  store(out, 0, out.elements(), to.data());
  return out;
}

template <Fold fold, Map map, Finish finish>
Result<> run_reduce(RunContext& c) {
  BOLIDE_TRY(const Tensor* x, c.tensor(0));
  BOLIDE_TRY(dispatch(kNumbers + Types<Bool>{}, x->dtype(), "input 0", []<class>() -> Result<> { return {}; }));
  BOLIDE_TRY(const Plan plan, plan_of(c, *x));
  constexpr Reduction kHow{fold, map, finish};
  constexpr bool kReal = finish == Finish::kRoot || finish == Finish::kLog;
  const Wider wider = kReal ? Wider::kReal : wider_of(x->dtype());
  BOLIDE_TRY(Tensor out, wider == Wider::kReal     ? reduce_as<double>(c, *x, plan, kHow)
                         : wider == Wider::kSigned ? reduce_as<int64_t>(c, *x, plan, kHow)
                                                   : reduce_as<uint64_t>(c, *x, plan, kHow));
  c.set(0, std::move(out));
  return {};
}

constexpr OpDef kRows[] = {
    {.domain = "",
     .name = "ReduceSum",
     .run = run_reduce<Fold::kSum, Map::kNone, Finish::kNone>,
     .prepare = prepare_reduce<RowFold::kSum>},
    {.domain = "",
     .name = "ReduceMean",
     .run = run_reduce<Fold::kSum, Map::kNone, Finish::kMean>,
     .prepare = prepare_reduce<RowFold::kMean>},
    {.domain = "", .name = "ReduceProd", .run = run_reduce<Fold::kProduct, Map::kNone, Finish::kNone>},
    {.domain = "",
     .name = "ReduceMax",
     .run = run_reduce<Fold::kMax, Map::kNone, Finish::kNone>,
     .prepare = prepare_reduce<RowFold::kMax>},
    {.domain = "", .name = "ReduceMin", .run = run_reduce<Fold::kMin, Map::kNone, Finish::kNone>},
    {.domain = "", .name = "ReduceL1", .run = run_reduce<Fold::kSum, Map::kAbs, Finish::kNone>},
    {.domain = "", .name = "ReduceL2", .run = run_reduce<Fold::kSum, Map::kSquare, Finish::kRoot>},
    {.domain = "", .name = "ReduceSumSquare", .run = run_reduce<Fold::kSum, Map::kSquare, Finish::kNone>},
    {.domain = "", .name = "ReduceLogSum", .run = run_reduce<Fold::kSum, Map::kNone, Finish::kLog>},
    {.domain = "", .name = "ReduceLogSumExp", .run = run_reduce<Fold::kSum, Map::kExp, Finish::kLog>},
};

}  // namespace

std::span<const OpDef> reduce_ops() {
  static const std::vector<OpDef> kAll = [] {
    std::vector<OpDef> rows(std::begin(kRows), std::end(kRows));
    rows.insert(rows.end(), along_ops().begin(), along_ops().end());
    return rows;
  }();
  return kAll;
}

}  // namespace bolide
