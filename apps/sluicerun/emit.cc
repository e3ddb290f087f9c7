#include "apps/sluicerun/emit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "apps/sluicerun/certificates.h"
#include "apps/sluicerun/rank.h"
#include "dist/net/credentials.h"
#include "engine/status.h"

namespace sluice::launcher {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kSecrets[] = "/etc/sluice/secrets";
// A pod has all ports to itself.
constexpr int kPort = 4000;

// What Kubernetes takes as a Service's name: a label of RFC 1035.
bool IsLabel(std::string_view text) {
  constexpr std::string_view kInside = "abcdefghijklmnopqrstuvwxyz0123456789-";
  return !text.empty() && text.front() >= 'a' && text.front() <= 'z' &&
         text.back() != '-' &&
         text.find_first_not_of(kInside) == std::string_view::npos;
}

// Of a volume that is there already.
struct Claim {
  std::string name, path;
};

Claim ParseClaim(const std::string& text) {
  const size_t colon = text.find(":/");
  if (colon == std::string::npos || colon == 0) {
    throw Error(Code::kInvalidArgument,
                fmt::format("--claim: wanted NAME:/PATH, got '{}'", text));
  }
  return {text.substr(0, colon), text.substr(colon + 1)};
}

// "$(X)" would be X's value there.
std::string Literal(const std::string& word) {
  std::string literal;
  for (const char c : word) literal += c == '$' ? "$$" : std::string(1, c);
  return literal;
}

Json Variable(const char* name, const std::string& value) {
  return {{"name", name}, {"value", value}};
}

Json VariableOf(const char* name, const std::string& annotation) {
  return {{"name", name},
          {"valueFrom", {{"fieldRef", {{"fieldPath", annotation}}}}}};
}

// Pods of one kind, which are a Job: pod I answers to NAME-I.SERVICE.
struct Pods {
  std::string role;  // of the cluster in SLUICE_CONFIG
  std::string name;
  int count;
};

// A pod's name has its index, and is a label too.
size_t LongestName(const Pods& pods) {
  return 62 - std::to_string(pods.count - 1).size();
}

// "worker":["NAME-0.SERVICE:PORT",...],"ps":[...]
std::string Cluster(const std::vector<Pods>& kinds, const std::string& service,
                    int port) {
  std::string cluster;
  for (const Pods& pods : kinds) {
    cluster += fmt::format("{}\"{}\":[", cluster.empty() ? "" : ",", pods.role);
    for (int i = 0; i < pods.count; ++i) {
      cluster += fmt::format("{}\"{}-{}.{}:{}\"", i == 0 ? "" : ",", pods.name,
                             i, service, port);
    }
    cluster += "]";
  }
  return cluster;
}

// By what the processes know each other: what each is told, and the files that
// it is told of, in kSecrets.
struct JobSecrets {
  std::vector<std::pair<const char*, std::string>> variables;
  CertificateFiles files;
};

JobSecrets SecretsOf(const EmitOptions& options, const JobOptions& job) {
  JobSecrets secrets;
  if (!job.allow_plaintext) {
    secrets.variables.emplace_back("SLUICE_CERTIFICATES", kSecrets);
    secrets.files =
        job.certificates.empty()
            ? NewCertificates(job.size, job.servers, options.days)
            : ReadCertificates(job.certificates, job.size, job.servers);
    return secrets;
  }
  secrets.variables.emplace_back("SLUICE_ALLOW_PLAINTEXT", "1");
  if (!IsSeveral(job)) return secrets;
  secrets.variables.emplace_back("SLUICE_TOKEN_FILE",
                                 fmt::format("{}/token", kSecrets));
  secrets.files.emplace_back("token", NewToken());
  return secrets;
}

// Who a pod is, by its index.
Json Environment(const Pods& pods, const std::string& cluster,
                 const JobSecrets& secrets) {
  Json variables = {
      VariableOf("INDEX",
                 "metadata.annotations['batch.kubernetes.io/"
                 "job-completion-index']"),
      Variable("SLUICE_CONFIG",
               fmt::format("{{\"cluster\":{{{}}},\"task\":"
                           "{{\"type\":\"{}\",\"index\":$(INDEX)}}}}",
                           cluster, pods.role)),
      VariableOf("SLUICE_JOB",
                 "metadata.labels['batch.kubernetes.io/controller-uid']")};
  for (const auto& [name, value] : secrets.variables) {
    variables.push_back(Variable(name, value));
  }
  return variables;
}

// All of a job's pods fail together, and each is counted. An int32 there.
int64_t BackoffLimit(int max_restarts, const Pods& pods) {
  return std::min<int64_t>(int64_t{max_restarts} * pods.count, INT32_MAX);
}

// CPUs are asked for and not limited: a process that waits leaves its own to
// others, and one that computes may have those.
Json Resources(const EmitOptions& options, bool works) {
  Json requests = Json::object(), limits = Json::object();
  if (options.cpus > 0) requests["cpu"] = std::to_string(options.cpus);
  if (options.memory > 0) {
    requests["memory"] = limits["memory"] = fmt::format("{}Gi", options.memory);
  }
  if (options.gpus > 0 && works) {
    limits["nvidia.com/gpu"] = std::to_string(options.gpus);
  }
  Json resources = Json::object();
  if (!requests.empty()) resources["requests"] = requests;
  if (!limits.empty()) resources["limits"] = limits;
  return resources;
}

Json Named(const std::string& name, const std::string& app) {
  return {{"name", name}, {"labels", {{"app", app}}}};
}

Json IndexedJob(const Pods& pods, const std::string& service, int max_restarts,
                const Json& container, const Json& volumes) {
  return {{"apiVersion", "batch/v1"},
          {"kind", "Job"},
          {"metadata", Named(pods.name, service)},
          {"spec",
           {{"completionMode", "Indexed"},
            {"completions", pods.count},
            {"parallelism", pods.count},
            {"backoffLimit", BackoffLimit(max_restarts, pods)},
            {"template",
             {{"metadata", {{"labels", {{"app", service}}}}},
              {"spec",
               {{"subdomain", service},
                {"restartPolicy", "Never"},
                {"containers", Json::array({container})},
                {"volumes", volumes}}}}}}}};
}

}  // namespace

bool IsSeveral(const JobOptions& job) {
  return job.size > 1 || job.servers > 0;
}

std::string NameOf(const EmitOptions& options, const JobOptions& job) {
  if (!options.name.empty()) return options.name;
  const std::string& program = job.command[0];
  return program.substr(program.rfind('/') + 1);
}

std::string KubernetesManifest(const EmitOptions& options,
                               const JobOptions& job) {
  const std::string name = NameOf(options, job);
  std::vector<Pods> kinds = {{std::string(dist::kWorkerRole), name, job.size}};
  size_t longest = LongestName(kinds[0]);
  if (job.servers > 0) {
    const std::string role(dist::kServerRole), end = "-" + role;
    kinds.push_back({role, name + end, job.servers});
    longest = std::min(longest, LongestName(kinds[1]) - end.size());
  }
  if (!IsLabel(name) || name.size() > longest) {
    throw Error(Code::kInvalidArgument,
                fmt::format("'{}' is no name for Kubernetes: give --job-name, "
                            "at most {} small letters, digits and '-', a "
                            "letter first",
                            name, longest));
  }
  if (options.image.empty()) {
    throw Error(Code::kInvalidArgument,
                "--emit kubernetes wants --image, the container's");
  }
  const JobSecrets secrets = SecretsOf(options, job);
  Json mounts = Json::array(), volumes = Json::array(), items = Json::array();
  if (!secrets.files.empty()) {
    mounts.push_back(
        {{"name", "secrets"}, {"mountPath", kSecrets}, {"readOnly", true}});
    // 0400: a key, or token, is its owner's alone.
    volumes.push_back(
        {{"name", "secrets"},
         {"secret", {{"secretName", name}, {"defaultMode", 256}}}});
    Json data = Json::object();
    for (const auto& [file, text] : secrets.files) data[file] = text;
    items.push_back({{"apiVersion", "v1"},
                     {"kind", "Secret"},
                     {"metadata", Named(name, name)},
                     {"type", "Opaque"},
                     {"stringData", data}});
  }
  for (size_t i = 0; i < options.claims.size(); ++i) {
    const Claim claim = ParseClaim(options.claims[i]);
    const std::string volume = fmt::format("volume-{}", i);
    mounts.push_back({{"name", volume}, {"mountPath", claim.path}});
    volumes.push_back({{"name", volume},
                       {"persistentVolumeClaim", {{"claimName", claim.name}}}});
  }
  Json command = Json::array();
  for (const std::string& word : job.command) command.push_back(Literal(word));
  // Names are known before pods are ready: they wait for each other.
  items.push_back({{"apiVersion", "v1"},
                   {"kind", "Service"},
                   {"metadata", Named(name, name)},
                   {"spec",
                    {{"clusterIP", "None"},
                     {"publishNotReadyAddresses", true},
                     {"selector", {{"app", name}}}}}});
  const std::string cluster =
      Cluster(kinds, name, job.port == 0 ? kPort : job.port);
  for (const Pods& pods : kinds) {
    const bool works = pods.role == dist::kWorkerRole;
    const Json container = {{"name", pods.role},
                            {"image", options.image},
                            {"command", command},
                            {"env", Environment(pods, cluster, secrets)},
                            {"resources", Resources(options, works)},
                            {"volumeMounts", mounts}};
    items.push_back(
        IndexedJob(pods, name, job.max_restarts, container, volumes));
  }
  const Json list = {{"apiVersion", "v1"}, {"kind", "List"}, {"items", items}};
  try {
    return list.dump(2) + "\n";
  } catch (const Json::exception&) {
    throw Error(Code::kInvalidArgument, "a word of the command is no UTF-8");
  }
}

}  // namespace sluice::launcher
