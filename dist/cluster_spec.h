// The tasks of a job and which of them this process is, as its environment says
// it in JSON: SLUICE_CONFIG, or TF_CONFIG as TensorFlow defines it
// (https://www.tensorflow.org/guide/distributed_training#TF_CONFIG).
//
//   {"cluster": {"chief": ["h0:4000"], "worker": ["h1:4000", "h2:4000"]},
//    "task": {"type": "worker", "index": 0},
//    "token_file": "PATH",                                 ours alone, both
//    "credentials": {"ca": "PATH", "certificate": "PATH", "key": "PATH"}}
#ifndef SLUICE_DIST_CLUSTER_SPEC_H_
#define SLUICE_DIST_CLUSTER_SPEC_H_

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "engine/status.h"

namespace sluice::dist {

// Jobs beside workers and parameter servers (dist/net/credentials.h): rank 0
// where there is one; and who evaluates what the others save.
inline constexpr std::string_view kChiefJob = "chief";
inline constexpr std::string_view kEvaluatorJob = "evaluator";

struct TaskAddress {
  std::string host;
  int port = 0;
};
// "h1:4000", "[::1]:4000". kInvalidArgument.
Result<TaskAddress> ParseTaskAddress(std::string_view text);

struct ClusterSpec {
  std::map<std::string, std::vector<TaskAddress>> jobs;
  std::string type;  // this task's job
  int index = 0;     // and which of it
  std::string token_file;
  std::string authority, certificate, key;  // paths

  // The tasks that train as a ring: the chief, if any, then the workers.
  std::vector<TaskAddress> Ring() const;
  // This task's rank in the ring; below 0: it is not in it.
  int RankInRing() const;
};

// kInvalidArgument naming what makes no sense: a task that is not in the
// cluster, an address twice, a job of no known name.
Result<ClusterSpec> ParseClusterSpec(std::string_view json);

}  // namespace sluice::dist

#endif  // SLUICE_DIST_CLUSTER_SPEC_H_
