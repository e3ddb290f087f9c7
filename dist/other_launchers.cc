#include "dist/other_launchers.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dist/cluster_spec.h"
#include "dist/net/credentials.h"
#include "dist/net/frame.h"
#include "engine/parse_number.h"

namespace sluice::dist {
namespace {

// Empty where it is not set.
std::string VariableText(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

Result<bool> Switch(const char* name) {
  const std::string said = VariableText(name);
  if (said == "1") return true;
  if (said == "0" || std::getenv(name) == nullptr) return false;
  return InvalidArgument(fmt::format("{}={} is neither 0 nor 1", name, said));
}

template <typename T>
Result<T> Number(const char* name, T least) {
  const std::string text = VariableText(name);
  const auto value = ParseWhole<T>(text);
  if (value && *value >= least) return *value;
  return InvalidArgument(
      fmt::format("{}={} is not a number from {}", name, text, least));
}

Status CheckPlace(const LaunchInfo& info, std::string_view who) {
  if (info.rank < info.size && info.local_rank < info.local_size &&
      info.local_size <= info.size) {
    return {};
  }
  return InvalidArgument(
      fmt::format("{} says rank {} of {}, {} of {} on this host", who,
                  info.rank, info.size, info.local_rank, info.local_size));
}

// Of a process that no launcher of ours has given any: what the user has.
Status ReadSecrets(const ClusterSpec& spec, LaunchInfo* info) {
  if (info->size == 1 && info->servers.empty()) return {};
  const bool server = info->server >= 0;
  if (!spec.certificate.empty()) {
    SLUICE_ASSIGN_OR_RETURN(
        info->credentials,
        ReadCredentialFiles(spec.authority, spec.certificate, spec.key));
  } else if (const std::string folder = VariableText("SLUICE_CERTIFICATES");
             !folder.empty()) {
    SLUICE_ASSIGN_OR_RETURN(
        info->credentials,
        ReadCredentials(folder, server ? kServerRole : kWorkerRole,
                        server ? info->server : info->rank));
  }
  SLUICE_ASSIGN_OR_RETURN(info->allow_plaintext, PlaintextAllowed());
  std::string path = spec.token_file;
  if (path.empty()) path = VariableText("SLUICE_TOKEN_FILE");
  if (!path.empty()) {
    SLUICE_ASSIGN_OR_RETURN(info->token, ReadTokenFile(path));
  }
  return {};
}

// The parameter servers that a cluster has, of which this task may be one.
Status ReadServers(const ClusterSpec& spec, LaunchInfo* info) {
  const auto servers = spec.jobs.find(std::string(kServerRole));
  if (servers == spec.jobs.end() || servers->second.empty()) return {};
  info->servers = servers->second;
  info->ends_servers = true;
  if (spec.type == kServerRole) info->server = spec.index;
  SLUICE_ASSIGN_OR_RETURN(info->servers_return, ServersReturn());
  return {};
}

// SLUICE_CONFIG and TF_CONFIG. The ring's first is where the others meet.
Result<LaunchInfo> FromSpec(const char* name) {
  Result<ClusterSpec> spec = ParseClusterSpec(VariableText(name));
  if (!spec.ok()) return spec.status().WithContext(name);
  LaunchInfo info;
  info.evaluates = spec->type == kEvaluatorJob;
  if (info.evaluates) return info;
  const std::vector<TaskAddress> ring = spec->Ring();
  info.rank = spec->RankInRing();
  info.size = static_cast<int>(ring.size());
  SLUICE_RETURN_IF_ERROR(ReadServers(*spec, &info));
  if (ring.empty()) {
    return InvalidArgument(
        fmt::format("{}: the cluster has no chief and no worker", name));
  }
  const TaskAddress& own = info.server < 0
                               ? ring[static_cast<size_t>(info.rank)]
                               : info.servers[static_cast<size_t>(info.server)];
  info.local_size = 0;
  for (size_t i = 0; i < ring.size(); ++i) {
    if (ring[i].host != own.host) continue;
    if (static_cast<int>(i) < info.rank) ++info.local_rank;
    ++info.local_size;
  }
  info.local_size = std::max(1, info.local_size);
  info.host = ring[0].host;
  info.port = ring[0].port;
  info.own_port = own.port;
  SLUICE_RETURN_IF_ERROR(ReadSecrets(*spec, &info));
  return info;
}

// Where this process and rank 0 listen, which neither of these launchers says:
// `first` is rank 0's host, or empty where that is not known; `job` is a number
// of the job's.
Status Meet(std::string_view who, const std::string& first, uint64_t job,
            LaunchInfo* info) {
  if (info->size == 1) return {};
  SLUICE_ASSIGN_OR_RETURN(info->own_port, OwnPort(info->local_rank));
  if (const std::string given = VariableText("SLUICE_COORDINATOR");
      !given.empty()) {
    SLUICE_ASSIGN_OR_RETURN(const TaskAddress at, ParseTaskAddress(given));
    info->host = at.host;
    info->port = at.port;
  } else if (!first.empty()) {
    info->host = first;
    // Rank 0 is the first of its host.
    info->port = info->own_port != 0 ? info->own_port - info->local_rank
                                     : 20'000 + static_cast<int>(job % 10'000);
  } else {
    return InvalidArgument(
        fmt::format("{} does not say where rank 0 is: set "
                    "SLUICE_COORDINATOR=host:port, the same for all",
                    who));
  }
  if (info->rank == 0) info->own_port = info->port;
  return ReadSecrets({}, info);
}

// https://docs.open-mpi.org/en/v5.0.x/tuning-apps/environment-var.html
Result<LaunchInfo> FromOpenMpi() {
  LaunchInfo info;
  SLUICE_ASSIGN_OR_RETURN(info.size, Number("OMPI_COMM_WORLD_SIZE", 1));
  SLUICE_ASSIGN_OR_RETURN(info.rank, Number("OMPI_COMM_WORLD_RANK", 0));
  SLUICE_ASSIGN_OR_RETURN(info.local_size,
                          Number("OMPI_COMM_WORLD_LOCAL_SIZE", 1));
  SLUICE_ASSIGN_OR_RETURN(info.local_rank,
                          Number("OMPI_COMM_WORLD_LOCAL_RANK", 0));
  SLUICE_RETURN_IF_ERROR(CheckPlace(info, "Open MPI"));
  const std::string job = VariableText("PMIX_NAMESPACE");
  const bool here = info.local_size == info.size && !job.empty();
  SLUICE_RETURN_IF_ERROR(
      Meet("Open MPI", here ? "127.0.0.1" : "", Key(job), &info));
  return info;
}

// "2(x3),1": how many of node `node`; 0 where it says nothing of it.
int OfNode(std::string_view text, int node) {
  while (!text.empty()) {
    const std::string_view part = text.substr(0, text.find(','));
    text.remove_prefix(std::min(part.size() + 1, text.size()));
    int tasks = 0, times = 1;
    const char* const end = part.data() + part.size();
    const auto number = std::from_chars(part.data(), end, tasks);
    const std::string_view rest(number.ptr,
                                static_cast<size_t>(end - number.ptr));
    if (rest.starts_with("(x")) {
      std::from_chars(rest.data() + 2, end, times);
    }
    if (number.ec != std::errc()) return 0;
    if (node < times) return tasks;
    node -= times;
  }
  return 0;
}

// The first host of "a[01-03,7]-x,b"; empty where it makes no sense.
std::string FirstOfNodeList(std::string_view list) {
  const size_t bracket = list.find('[');
  const size_t comma = list.find(',');
  if (bracket == std::string_view::npos || comma < bracket) {
    return std::string(list.substr(0, comma));
  }
  const size_t close = list.find(']', bracket);
  if (close == std::string_view::npos) return "";
  const std::string_view ranges = list.substr(bracket + 1, close - bracket - 1);
  const std::string_view behind = list.substr(close + 1);
  return std::string(list.substr(0, bracket)) +
         std::string(ranges.substr(0, ranges.find_first_of(",-"))) +
         std::string(behind.substr(0, behind.find(',')));
}

// https://slurm.schedmd.com/srun.html#SECTION_OUTPUT-ENVIRONMENT-VARIABLES
Result<LaunchInfo> FromSlurm() {
  LaunchInfo info;
  SLUICE_ASSIGN_OR_RETURN(info.size, Number("SLURM_STEP_NUM_TASKS", 1));
  SLUICE_ASSIGN_OR_RETURN(info.rank, Number("SLURM_PROCID", 0));
  SLUICE_ASSIGN_OR_RETURN(info.local_rank, Number("SLURM_LOCALID", 0));
  SLUICE_ASSIGN_OR_RETURN(const int node, Number("SLURM_NODEID", 0));
  info.local_size = OfNode(VariableText("SLURM_STEP_TASKS_PER_NODE"), node);
  SLUICE_RETURN_IF_ERROR(CheckPlace(info, "Slurm"));
  // Steps of special kinds have the largest numbers of 32 bits.
  constexpr uint64_t kAny = 0;
  SLUICE_ASSIGN_OR_RETURN(const uint64_t job, Number("SLURM_JOB_ID", kAny));
  SLUICE_ASSIGN_OR_RETURN(const uint64_t step, Number("SLURM_STEP_ID", kAny));
  SLUICE_RETURN_IF_ERROR(
      Meet("Slurm", FirstOfNodeList(VariableText("SLURM_STEP_NODELIST")),
           job * 31 + step, &info));
  return info;
}

}  // namespace

Result<bool> PlaintextAllowed() {
  return Switch("SLUICE_ALLOW_PLAINTEXT");
}

Result<bool> ServersReturn() {
  return Switch("SLUICE_SERVERS_RETURN");
}

Result<int> OwnPort(int local_rank) {
  // SLUICE_PORT is set by Kubernetes where there is a Service named "sluice".
  constexpr const char* kPort = "SLUICE_FIRST_PORT";
  constexpr int64_t kLast = 65535;
  if (std::getenv(kPort) == nullptr) return 0;
  SLUICE_ASSIGN_OR_RETURN(const int first, Number(kPort, 1));
  const int64_t own = int64_t{first} + local_rank;
  if (own <= kLast) return static_cast<int>(own);
  return InvalidArgument(
      fmt::format("{}={} puts local rank {} at port {}, of which there are {}",
                  kPort, first, local_rank, own, kLast));
}

Result<std::optional<LaunchInfo>> ReadOtherLaunchers() {
  struct Launcher {
    const char* name;
    const char* variable;
    Result<LaunchInfo> (*read)();
  };
  const std::vector<Launcher> all = {
      {"SLUICE_CONFIG", "SLUICE_CONFIG",
       [] { return FromSpec("SLUICE_CONFIG"); }},
      {"TF_CONFIG", "TF_CONFIG", [] { return FromSpec("TF_CONFIG"); }},
      {"Open MPI", "OMPI_COMM_WORLD_SIZE", FromOpenMpi},
      // Of a step of srun's: a script of sbatch's has the others, too.
      {"Slurm", "SLURM_STEP_ID", FromSlurm}};
  std::vector<const Launcher*> found;
  for (const Launcher& launcher : all) {
    if (std::getenv(launcher.variable) != nullptr) found.push_back(&launcher);
  }
  // mpirun starts its own processes through srun.
  if (found.size() == 2 && found[0] == &all[2]) found.pop_back();
  if (found.empty()) return std::optional<LaunchInfo>();
  if (found.size() > 1) {
    return InvalidArgument(
        fmt::format("{} and {} both say which process this is: unset {} or {}",
                    found[0]->name, found[1]->name, found[0]->variable,
                    found[1]->variable));
  }
  SLUICE_ASSIGN_OR_RETURN(LaunchInfo info, found[0]->read());
  return std::optional(std::move(info));
}

}  // namespace sluice::dist
