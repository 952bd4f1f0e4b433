#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "ops/ml_parts.h"
#include "ops/moves.h"

namespace bolide::ml {
namespace {

enum class Mode : uint8_t { kAtMost, kLess, kAtLeast, kGreater, kEqual, kUnequal, kMember };
enum class Aggregate : uint8_t { kAverage, kSum, kMin, kMax };

// Trees of all three ops. A child is a node's index, or ~ of a leaf's.
struct Forest {
  struct Node {
    Mode mode = Mode::kAtMost;
    bool missing_is_true = false;
    int64_t feature = 0;
    double split = 0;
    int64_t yes = 0, no = 0;
    size_t members = 0;  // of sets
  };
  struct Vote {
    int64_t target;
    double weight;
  };
  std::vector<Node> nodes;
  std::vector<std::vector<Vote>> leaves;
  std::vector<std::vector<double>> sets;
  std::vector<int64_t> roots;
  int64_t targets = 0;
  Aggregate aggregate = Aggregate::kSum;

  // All indices lead somewhere. What goes in circles is found by counting steps.
  Result<> check(int64_t columns) const {
    const auto leads = [&](int64_t child) {
      return child >= 0 ? child < static_cast<int64_t>(nodes.size()) : ~child < static_cast<int64_t>(leaves.size());
    };
    for (const Node& node : nodes)
      if (!leads(node.yes) || !leads(node.no) || node.feature < 0 || node.feature >= columns)
        return error(Code::kInvalid,
                     fmt::format("a node of feature {} of {} or with no such child", node.feature, columns));
    for (const auto& leaf : leaves)
      for (const Vote& vote : leaf)
        if (vote.target < 0 || vote.target >= targets)
          return error(Code::kInvalid, fmt::format("a leaf of target {} of {}", vote.target, targets));
    for (const int64_t root : roots)
      if (!leads(root)) return error(Code::kInvalid, fmt::format("root {} of {} nodes", root, nodes.size()));
    return {};
  }

  bool decide(const Node& node, double x) const {
    if (node.missing_is_true && std::isnan(x)) return true;
    switch (node.mode) {
      case Mode::kAtMost: return x <= node.split;
      case Mode::kLess: return x < node.split;
      case Mode::kAtLeast: return x >= node.split;
      case Mode::kGreater: return x > node.split;
      case Mode::kEqual: return x == node.split;
      case Mode::kUnequal: return x != node.split;
      default: return std::find(sets[node.members].begin(), sets[node.members].end(), x) != sets[node.members].end();
    }
  }

  Result<const std::vector<Vote>*> leaf_of(int64_t root, std::span<const double> row) const {
    int64_t at = root;
    for (size_t steps = 0; at >= 0; ++steps) {
      if (steps > nodes.size()) return error(Code::kInvalid, "a tree goes in circles");
      const Node& node = nodes[static_cast<size_t>(at)];
      at = decide(node, row[static_cast<size_t>(node.feature)]) ? node.yes : node.no;
    }
    return &leaves[static_cast<size_t>(~at)];
  }

  // Targets without a vote are 0.
  Result<std::vector<double>> score(std::span<const double> row) const {
    std::vector<double> scores(static_cast<size_t>(targets));
    std::vector<bool> any(static_cast<size_t>(targets));
    for (const int64_t root : roots) {
      BOLIDE_TRY(const std::vector<Vote>* leaf, leaf_of(root, row));
      for (const Vote& vote : *leaf) {
        const auto t = static_cast<size_t>(vote.target);
        if (aggregate == Aggregate::kMin && any[t])
          scores[t] = std::min(scores[t], vote.weight);
        else if (aggregate == Aggregate::kMax && any[t])
          scores[t] = std::max(scores[t], vote.weight);
        else
          scores[t] += vote.weight;
        any[t] = true;
      }
    }
    if (aggregate == Aggregate::kAverage)
      for (double& s : scores) s /= static_cast<double>(roots.size());
    return scores;
  }
};

constexpr int64_t kTargetsMax = 1 << 24;

// An attribute that is a tensor of numbers, or (in old versions) a list of them.
Result<std::vector<double>> numbers_of(const RunContext& c, const std::string& name) {
  for (const std::string& one : {name, name + "_as_tensor"}) {
    const Attributes::Any* any = c.attributes().find(one);
    if (any == nullptr) continue;
    if (const Tensor* tensor = std::get_if<Tensor>(any)) return doubles_of(*tensor).context(one);
    BOLIDE_TRY(const std::vector<float> list, c.attributes().numbers(one));
    if (!list.empty()) return std::vector<double>(list.begin(), list.end());
  }
  return std::vector<double>();
}

Result<Forest> forest_of(const RunContext& c) {
  const Attributes& a = c.attributes();
  Forest f;
  BOLIDE_TRY(const std::vector<double> modes, numbers_of(c, "nodes_modes"));
  BOLIDE_TRY(const std::vector<double> splits, numbers_of(c, "nodes_splits"));
  BOLIDE_TRY(const std::vector<double> weights, numbers_of(c, "leaf_weights"));
  BOLIDE_TRY(const std::vector<double> members, numbers_of(c, "membership_values"));
  BOLIDE_TRY(const std::vector<int64_t> features, a.integers("nodes_featureids"));
  BOLIDE_TRY(const std::vector<int64_t> yes, a.integers("nodes_truenodeids"));
  BOLIDE_TRY(const std::vector<int64_t> no, a.integers("nodes_falsenodeids"));
  BOLIDE_TRY(const std::vector<int64_t> yes_is_leaf, a.integers("nodes_trueleafs"));
  BOLIDE_TRY(const std::vector<int64_t> no_is_leaf, a.integers("nodes_falseleafs"));
  BOLIDE_TRY(const std::vector<int64_t> missing, a.integers("nodes_missing_value_tracks_true"));
  BOLIDE_TRY(const std::vector<int64_t> leaf_targets, a.integers("leaf_targetids"));
  BOLIDE_TRY(f.roots, a.integers("tree_roots"));
  BOLIDE_TRY(f.targets, a.integer("n_targets", 0));
  BOLIDE_TRY(const int64_t aggregate, a.integer("aggregate_function", 1));
  const size_t n = features.size();
  for (const size_t size : {modes.size(), splits.size(), yes.size(), no.size(), yes_is_leaf.size(), no_is_leaf.size(),
                            missing.empty() ? n : missing.size()})
    if (size != n) return error(Code::kInvalid, fmt::format("lists of nodes of {} and {}", n, size));
  if (leaf_targets.size() != weights.size() || aggregate < 0 || aggregate > 3 || f.targets < 1 ||
      f.targets > kTargetsMax)
    return error(Code::kInvalid, fmt::format("{} leaves with {} weights, aggregate_function {}, n_targets {}",
                                             leaf_targets.size(), weights.size(), aggregate, f.targets));
  f.aggregate = static_cast<Aggregate>(aggregate);
  size_t member = 0;
  for (size_t i = 0; i < n; ++i) {
    if (!(modes[i] >= 0 && modes[i] <= 6)) return error(Code::kInvalid, fmt::format("mode {}", modes[i]));
    if (yes[i] < 0 || no[i] < 0) return error(Code::kInvalid, fmt::format("children {} and {}", yes[i], no[i]));
    Forest::Node node{static_cast<Mode>(modes[i]),
                      !missing.empty() && missing[i] != 0,
                      features[i],
                      splits[i],
                      yes_is_leaf[i] != 0 ? ~yes[i] : yes[i],
                      no_is_leaf[i] != 0 ? ~no[i] : no[i],
                      f.sets.size()};
    if (node.mode == Mode::kMember) {  // sets follow each other, a NaN after each
      std::vector<double>& set = f.sets.emplace_back();
      while (member < members.size() && !std::isnan(members[member])) set.push_back(members[member++]);
      ++member;
    }
    f.nodes.push_back(node);
  }
  for (size_t i = 0; i < weights.size(); ++i) f.leaves.push_back({{leaf_targets[i], weights[i]}});
  return f;
}

// The older ops name nodes by their tree and number; `who` votes: "target" or "class".
Result<Forest> old_forest_of(const RunContext& c, const std::string& who, int64_t targets) {
  const Attributes& a = c.attributes();
  Forest f;
  f.targets = targets;
  BOLIDE_TRY(const std::vector<int64_t> trees, a.integers("nodes_treeids"));
  BOLIDE_TRY(const std::vector<int64_t> ids, a.integers("nodes_nodeids"));
  BOLIDE_TRY(const std::vector<int64_t> features, a.integers("nodes_featureids"));
  BOLIDE_TRY(const std::vector<int64_t> yes, a.integers("nodes_truenodeids"));
  BOLIDE_TRY(const std::vector<int64_t> no, a.integers("nodes_falsenodeids"));
  BOLIDE_TRY(const std::vector<int64_t> missing, a.integers("nodes_missing_value_tracks_true"));
  BOLIDE_TRY(const std::vector<std::string> modes, a.texts("nodes_modes"));
  BOLIDE_TRY(const std::vector<double> splits, numbers_of(c, "nodes_values"));
  BOLIDE_TRY(const std::vector<int64_t> vote_trees, a.integers(who + "_treeids"));
  BOLIDE_TRY(const std::vector<int64_t> vote_nodes, a.integers(who + "_nodeids"));
  BOLIDE_TRY(const std::vector<int64_t> vote_targets, a.integers(who + "_ids"));
  BOLIDE_TRY(const std::vector<double> weights, numbers_of(c, who + "_weights"));
  const size_t n = trees.size();
  for (const size_t size : {ids.size(), features.size(), yes.size(), no.size(), modes.size(), splits.size(),
                            missing.empty() ? n : missing.size()})
    if (size != n) return error(Code::kInvalid, fmt::format("lists of nodes of {} and {}", n, size));
  for (const size_t size : {vote_nodes.size(), vote_targets.size(), weights.size()})
    if (size != vote_trees.size())
      return error(Code::kInvalid, fmt::format("lists of votes of {} and {}", vote_trees.size(), size));

  constexpr std::string_view kModes[] = {"BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE",
                                         "BRANCH_GT",  "BRANCH_EQ", "BRANCH_NEQ"};
  std::map<std::pair<int64_t, int64_t>, int64_t> places;  // as children name them
  int64_t branches = 0;
  for (size_t i = 0; i < n; ++i) {
    const bool is_leaf = modes[i] == "LEAF";
    if (is_leaf) f.leaves.emplace_back();
    const int64_t place = is_leaf ? ~(static_cast<int64_t>(f.leaves.size()) - 1) : branches++;
    if (!places.emplace(std::pair(trees[i], ids[i]), place).second)
      return error(Code::kInvalid, fmt::format("node {} of tree {} twice", ids[i], trees[i]));
  }
  std::set<int64_t> children;
  for (size_t i = 0; i < n; ++i) {
    if (modes[i] == "LEAF") continue;
    const auto* const mode = std::find(std::begin(kModes), std::end(kModes), modes[i]);
    if (mode == std::end(kModes)) return error(Code::kInvalid, fmt::format("mode {:.40}", modes[i]));
    const auto left = places.find({trees[i], yes[i]}), right = places.find({trees[i], no[i]});
    if (left == places.end() || right == places.end())
      return error(Code::kInvalid, fmt::format("children {} and {} of tree {}", yes[i], no[i], trees[i]));
    children.insert(left->second);
    children.insert(right->second);
    f.nodes.push_back({static_cast<Mode>(mode - std::begin(kModes)), !missing.empty() && missing[i] != 0, features[i],
                       splits[i], left->second, right->second, 0});
  }
  for (size_t i = 0; i < n; ++i)
    if (const int64_t place = places.at({trees[i], ids[i]}); !children.contains(place)) f.roots.push_back(place);
  for (size_t i = 0; i < weights.size(); ++i) {
    const auto leaf = places.find({vote_trees[i], vote_nodes[i]});
    if (leaf == places.end() || leaf->second >= 0)
      return error(Code::kInvalid, fmt::format("no leaf {} of tree {}", vote_nodes[i], vote_trees[i]));
    f.leaves[static_cast<size_t>(~leaf->second)].push_back({vote_targets[i], weights[i]});
  }
  return f;
}

Result<> add_base(const RunContext& c, std::vector<double>& scores) {
  BOLIDE_TRY(const std::vector<double> base, numbers_of(c, "base_values"));
  if (base.size() != scores.size() && base.size() > 1)
    return error(Code::kInvalid, fmt::format("{} base_values for {} scores", base.size(), scores.size()));
  for (size_t i = 0; i < scores.size() && !base.empty(); ++i) scores[i] += base[base.size() == 1 ? 0 : i];
  return {};
}

}  // namespace

Result<> run_tree_ensemble(RunContext& c) {
  BOLIDE_TRY(const Matrix x, matrix_of(c));
  BOLIDE_TRY(const Forest forest, forest_of(c));
  BOLIDE_TRY(forest.check(x.columns));
  BOLIDE_TRY(const int64_t how, c.attributes().integer("post_transform", 0));
  if (how < 0 || how > 4) return error(Code::kInvalid, fmt::format("post_transform {}", how));
  std::vector<double> all;
  for (int64_t row = 0; row < x.rows; ++row) {
    BOLIDE_TRY(std::vector<double> scores, forest.score(x.row(row)));
    post_transform(static_cast<PostTransform>(how), scores);
    all.insert(all.end(), scores.begin(), scores.end());
  }
  return set_scores(c, 0, c.value(0)->tensor()->dtype(), x.rows, all);
}

Result<> run_tree_regressor(RunContext& c) {
  BOLIDE_TRY(const Matrix x, matrix_of(c));
  BOLIDE_TRY(const PostTransform how, post_transform_of(c));
  BOLIDE_TRY(const int64_t targets, c.attributes().integer("n_targets", 1));
  BOLIDE_TRY(const std::string aggregate, c.attributes().text("aggregate_function", "SUM"));
  if (targets < 1 || targets > kTargetsMax) return error(Code::kInvalid, fmt::format("n_targets {}", targets));
  BOLIDE_TRY(Forest forest, old_forest_of(c, "target", targets));
  BOLIDE_TRY(forest.check(x.columns));
  constexpr std::string_view kNames[] = {"AVERAGE", "SUM", "MIN", "MAX"};
  const auto* const named = std::find(std::begin(kNames), std::end(kNames), aggregate);
  if (named == std::end(kNames)) return error(Code::kInvalid, fmt::format("aggregate_function {:.40}", aggregate));
  forest.aggregate = static_cast<Aggregate>(named - std::begin(kNames));
  std::vector<double> all;
  for (int64_t row = 0; row < x.rows; ++row) {
    BOLIDE_TRY(std::vector<double> scores, forest.score(x.row(row)));
    BOLIDE_TRY(add_base(c, scores));
    post_transform(how, scores);
    all.insert(all.end(), scores.begin(), scores.end());
  }
  return set_scores(c, 0, DType::kF32, x.rows, all);
}

Result<> run_tree_classifier(RunContext& c) {
  BOLIDE_TRY(const Matrix x, matrix_of(c));
  BOLIDE_TRY(const PostTransform how, post_transform_of(c));
  BOLIDE_TRY(const Tensor labels, class_labels(c, "classlabels_strings", "classlabels_int64s"));
  BOLIDE_TRY(const Forest forest, old_forest_of(c, "class", labels.elements()));
  BOLIDE_TRY(forest.check(x.columns));
  std::set<int64_t> voted;
  bool all_positive = true;
  for (const auto& leaf : forest.leaves)
    for (const Forest::Vote& vote : leaf) {
      voted.insert(vote.target);
      all_positive = all_positive && vote.weight >= 0;
    }
  const bool is_single = labels.elements() == 2 && voted.size() == 1;
  BOLIDE_TRY(const std::vector<double> base, numbers_of(c, "base_values"));
  std::vector<double> all;
  std::vector<int64_t> places;
  for (int64_t row = 0; row < x.rows; ++row) {
    BOLIDE_TRY(std::vector<double> scores, forest.score(x.row(row)));
    if (is_single) {
      const double score = scores[static_cast<size_t>(*voted.begin())] + (base.empty() ? 0 : base.back());
      places.push_back(score > (all_positive ? 0.5 : 0.0) ? 1 : 0);
      scores = split_in_two(score, all_positive, how);
    } else {
      BOLIDE_TRY(add_base(c, scores));
      places.push_back(std::max_element(scores.begin(), scores.end()) - scores.begin());
      post_transform(how, scores);
    }
    all.insert(all.end(), scores.begin(), scores.end());
  }
  return set_classes(c, labels, places, all);
}

}  // namespace bolide::ml
