// Every collective as a graph's op, and what it makes of all workers' values.
#ifndef SLUICE_TESTS_GRAPH_OPS_VERBS_H_
#define SLUICE_TESTS_GRAPH_OPS_VERBS_H_

#include <cstddef>
#include <string>
#include <vector>

#include "dist/collective/group.h"
#include "engine/status.h"
#include "graph/ops/collective.h"

namespace sluice::testing {

enum class Verb {
  kAllReduce,
  kMean,
  kGather,
  kScatter,
  kScatterMean,
  kTrade,
  kBroadcast,
  kReduce
};
inline constexpr int kVerbs = 8;

// Four workers are two rows and two columns, too.
inline constexpr const char* kGroups[] = {"", "rows", "columns"};
using Ranks = std::vector<int>;
inline std::vector<Ranks> PartsOf(size_t group, int workers) {
  if (group == 1) return {{0, 1}, {2, 3}};
  if (group == 2) return {{0, 2}, {1, 3}};
  Ranks all;
  for (int rank = 0; rank < workers; ++rank) all.push_back(rank);
  return {all};
}
inline Status Split(dist::Group& group) {
  if (group.size() != 4) return {};
  SLUICE_RETURN_IF_ERROR(group.Split("rows", group.rank() / 2));
  return group.Split("columns", group.rank() % 2);
}

// Values of one name, so that it tells no verb from another.
inline Output Apply(Verb verb, const Output& x, int root,
                    const std::string& group = {}) {
  switch (verb) {
    case Verb::kAllReduce:
      return AllReduce(x, Reduction::kSum, "verb", group);
    case Verb::kMean:
      return AllReduce(x, Reduction::kMean, "verb", group);
    case Verb::kGather:
      return AllGather(x, "verb", group);
    case Verb::kScatter:
      return ReduceScatter(x, Reduction::kSum, "verb", group);
    case Verb::kScatterMean:
      return ReduceScatter(x, Reduction::kMean, "verb", group);
    case Verb::kTrade:
      return AllToAll(x, "verb", group);
    case Verb::kBroadcast:
      return Broadcast(x, root, "verb", group);
    case Verb::kReduce:
      return Reduce(x, root, "verb", group);
  }
  return {};
}

// Of all workers, by rank.
using Values = std::vector<std::vector<double>>;

inline size_t At(int rank) {
  return static_cast<size_t>(rank);
}

inline Values Applied(Verb verb, const Values& x, int root) {
  const size_t n = x.size(), count = x[0].size(), part = count / n;
  std::vector<double> sum(count, 0), whole;
  for (const auto& mine : x) {
    for (size_t i = 0; i < count; ++i) sum[i] += mine[i];
    whole.insert(whole.end(), mine.begin(), mine.end());
  }
  const bool mean = verb == Verb::kMean || verb == Verb::kScatterMean;
  for (double& s : sum) s /= mean ? static_cast<double>(n) : 1.0;
  Values y(n);
  for (size_t rank = 0; rank < n; ++rank) {
    const auto own = [&](const std::vector<double>& of) {
      const auto begin = of.begin() + static_cast<std::ptrdiff_t>(rank * part);
      y[rank].insert(y[rank].end(), begin,
                     begin + static_cast<std::ptrdiff_t>(part));
    };
    switch (verb) {
      case Verb::kAllReduce:
      case Verb::kMean:
        y[rank] = sum;
        break;
      case Verb::kGather:
        y[rank] = whole;
        break;
      case Verb::kScatter:
      case Verb::kScatterMean:
        own(sum);
        break;
      case Verb::kTrade:
        for (const auto& theirs : x) own(theirs);
        break;
      case Verb::kBroadcast:
        y[rank] = x[At(root)];
        break;
      case Verb::kReduce:
        y[rank] = rank == At(root) ? sum : std::vector<double>(count, 0);
        break;
    }
  }
  return y;
}

inline Values AppliedIn(const std::vector<Ranks>& parts, Verb verb,
                        const Values& x, int root) {
  Values y(x.size());
  for (const Ranks& part : parts) {
    Values given;
    for (const int rank : part) given.push_back(x[At(rank)]);
    const Values made = Applied(verb, given, root);
    for (size_t i = 0; i < part.size(); ++i) y[At(part[i])] = made[i];
  }
  return y;
}

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_GRAPH_OPS_VERBS_H_
