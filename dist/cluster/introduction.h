// The texts by which tasks introduce themselves when they meet, before all
// else.
#ifndef SLUICE_DIST_CLUSTER_INTRODUCTION_H_
#define SLUICE_DIST_CLUSTER_INTRODUCTION_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "dist/cluster/options.h"
#include "engine/status.h"

namespace sluice::dist {

// The first text on each stream of a link (task_links.cc).
struct Introduction {
  std::string task, number;
  bool to = false;  // from who connects

  std::string ToText() const;
  // kInvalidArgument where the text is none.
  static Result<Introduction> Parse(std::string_view text);
};

// What a peer (peers.h) tells the others when a session is opened.
struct Peer {
  ClusterTask address;
  // Parallel.
  std::vector<std::string> devices, descriptions;
  std::vector<uint64_t> incarnations;
  uint64_t first_run = 0;  // what it would have the number of the first run be

  std::string ToText() const;
  // kInvalidArgument where the text is none.
  static Result<Peer> Parse(std::string_view text);
};

}  // namespace sluice::dist

#endif  // SLUICE_DIST_CLUSTER_INTRODUCTION_H_
