#include "dist/cluster_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "dist/net/address.h"
#include "dist/net/credentials.h"
#include "engine/parse_number.h"

namespace sluice::dist {
namespace {

using Json = nlohmann::json;

constexpr std::array<std::string_view, 4> kJobs = {kChiefJob, kWorkerRole,
                                                   kServerRole, kEvaluatorJob};

// A number, or as some write it a text of digits.
Result<int> IndexOf(const Json& json) {
  int index = -1;
  if (json.is_number_unsigned()) {
    const auto number = json.get<uint64_t>();
    constexpr int kMost = std::numeric_limits<int>::max();
    if (number <= uint64_t{kMost}) index = static_cast<int>(number);
  }
  if (json.is_string()) {
    index = ParseWhole<int>(json.get_ref<const std::string&>()).value_or(-1);
  }
  if (index >= 0) return index;
  return InvalidArgument(
      fmt::format("the task's index is {}, not a number from 0", json.dump()));
}

Status ReadJobs(const Json& cluster, ClusterSpec* spec) {
  std::set<std::string> seen;
  for (const auto& [name, tasks] : cluster.items()) {
    if (std::find(kJobs.begin(), kJobs.end(), name) == kJobs.end()) {
      return InvalidArgument(fmt::format("the job '{}' is none of {}", name,
                                         fmt::join(kJobs, ", ")));
    }
    // Of an object, as TensorFlow takes one, the keys would be lost.
    if (!tasks.is_array()) {
      return InvalidArgument(
          fmt::format("the job '{}' is no list of addresses", name));
    }
    for (const Json& task : tasks) {
      const auto text = task.get<std::string>();
      SLUICE_ASSIGN_OR_RETURN(TaskAddress address, ParseTaskAddress(text));
      // TensorFlow's evaluator is of no cluster, and its address unused.
      if (name != kEvaluatorJob && !seen.insert(text).second) {
        return InvalidArgument(fmt::format("two tasks are at {}", text));
      }
      spec->jobs[name].push_back(std::move(address));
    }
  }
  return {};
}

Status ReadTask(const Json& task, ClusterSpec* spec) {
  task.at("type").get_to(spec->type);
  SLUICE_ASSIGN_OR_RETURN(spec->index, IndexOf(task.at("index")));
  const auto job = spec->jobs.find(spec->type);
  const size_t tasks = job == spec->jobs.end() ? 0 : job->second.size();
  if (spec->type == kEvaluatorJob || static_cast<size_t>(spec->index) < tasks) {
    return {};
  }
  return InvalidArgument(
      fmt::format("this task is {} {}, but the cluster has {} of these",
                  spec->type, spec->index, tasks));
}

}  // namespace

Result<TaskAddress> ParseTaskAddress(std::string_view text) {
  const Status senseless = InvalidArgument(
      fmt::format("'{}' is not host:port, or [address]:port for IPv6", text));
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return senseless;
  const auto port = ParseWhole<int>(text.substr(colon + 1));
  if (!port || *port < 1 || *port > 65535) return senseless;
  std::string_view host = text.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) {
    host = host.substr(1, host.size() - 2);
  } else if (host.find_first_of(":[]") != std::string_view::npos) {
    return senseless;
  }
  if (host.empty()) return senseless;
  return TaskAddress{std::string(host), *port};
}

std::vector<TaskAddress> ClusterSpec::Ring() const {
  std::vector<TaskAddress> ring;
  for (const std::string_view name : {kChiefJob, kWorkerRole}) {
    const auto job = jobs.find(std::string(name));
    if (job == jobs.end()) continue;
    ring.insert(ring.end(), job->second.begin(), job->second.end());
  }
  return ring;
}

int ClusterSpec::RankInRing() const {
  if (type == kChiefJob) return index;
  if (type != kWorkerRole) return -1;
  const auto chief = jobs.find(std::string(kChiefJob));
  return index +
         (chief == jobs.end() ? 0 : static_cast<int>(chief->second.size()));
}

Result<ClusterSpec> ParseClusterSpec(std::string_view json) {
  try {
    const Json whole = Json::parse(json);
    ClusterSpec spec;
    SLUICE_RETURN_IF_ERROR(ReadJobs(whole.at("cluster"), &spec));
    SLUICE_RETURN_IF_ERROR(ReadTask(whole.at("task"), &spec));
    spec.token_file = whole.value("token_file", "");
    if (whole.contains("credentials")) {
      const Json& credentials = whole["credentials"];
      credentials.at("ca").get_to(spec.authority);
      credentials.at("certificate").get_to(spec.certificate);
      credentials.at("key").get_to(spec.key);
    }
    return spec;
  } catch (const Json::exception& error) {
    return InvalidArgument(error.what());
  }
}

}  // namespace sluice::dist
