#include "dist/other_launchers.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "dist/cluster_spec.h"
#include "dist/net/socket.h"
#include "tests/support/temporary_folder.h"

namespace sluice::dist {
namespace {

using Variables = std::map<std::string, std::string>;

constexpr const char* kNames[] = {"SLUICE_CONFIG",
                                  "TF_CONFIG",
                                  "SLUICE_TOKEN_FILE",
                                  "SLUICE_CERTIFICATES",
                                  "SLUICE_ALLOW_PLAINTEXT",
                                  "SLUICE_COORDINATOR",
                                  "SLUICE_FIRST_PORT",
                                  "SLUICE_PORT",
                                  "SLUICE_SERVERS_RETURN",
                                  "PMIX_NAMESPACE",
                                  "OMPI_COMM_WORLD_SIZE",
                                  "OMPI_COMM_WORLD_RANK",
                                  "OMPI_COMM_WORLD_LOCAL_SIZE",
                                  "OMPI_COMM_WORLD_LOCAL_RANK",
                                  "SLURM_STEP_ID",
                                  "SLURM_JOB_ID",
                                  "SLURM_STEP_NUM_TASKS",
                                  "SLURM_PROCID",
                                  "SLURM_LOCALID",
                                  "SLURM_NODEID",
                                  "SLURM_STEP_TASKS_PER_NODE",
                                  "SLURM_STEP_NODELIST"};

void Clear() {
  for (const char* name : kNames) unsetenv(name);
}

Result<std::optional<LaunchInfo>> Read(const Variables& variables) {
  Clear();
  for (const auto& [name, value] : variables) {
    setenv(name.c_str(), value.c_str(), 1);
  }
  auto info = ReadOtherLaunchers();
  Clear();
  return info;
}

// The line of an error.
std::string Refused(const Variables& variables) {
  const auto info = Read(variables);
  REQUIRE_FALSE(info.ok());
  CHECK(info.status().message().find('\n') == std::string::npos);
  return info.status().message();
}

bool Has(const std::string& text, const std::string& part) {
  CAPTURE(text);
  return text.find(part) != std::string::npos;
}

// A token's file, and a port that nobody listens at.
struct Place {
  Place() {
    std::ofstream(path) << std::string(64, 'f') << "\n";
    chmod(path.c_str(), 0600);
  }
  testing::TemporaryFolder folder;
  const std::string path = folder / "token";
  const int port = Listener::Open("127.0.0.1").ValueOrThrow().port();
};

std::string Config(const std::string& cluster, const std::string& task,
                   const std::string& more = "") {
  return fmt::format(R"({{"cluster": {{{}}}, "task": {{{}}}{}}})", cluster,
                     task, more);
}

TEST_CASE("where no launcher has said anything this process is alone") {
  CHECK_FALSE(Read({}).ValueOrThrow().has_value());
  CHECK_FALSE(Read({{"SLURM_JOB_ID", "7"}, {"SLURM_PROCID", "0"}})
                  .ValueOrThrow()
                  .has_value());  // sbatch's own script
}

TEST_CASE("TF_CONFIG as it is: the chief is rank 0, the workers follow") {
  const Place place;
  const std::string cluster = fmt::format(
      R"("chief": ["127.0.0.1:{}"], "worker": ["b:4001", "127.0.0.1:4002",
         "b:4003"], "evaluator": ["127.0.0.1:1"])",
      place.port);
  struct Case {
    std::string type, index;
    int rank, local_rank, local_size, own_port;
  };
  for (const Case& one :
       std::vector<Case>{{"chief", "0", 0, 0, 2, place.port},
                         {"worker", "0", 1, 0, 2, 4001},
                         {"worker", "1", 2, 1, 2, 4002},
                         {"worker", "\"2\"", 3, 1, 2, 4003}}) {
    const auto info =
        *Read({{"TF_CONFIG", Config(cluster,
                                    fmt::format(R"("type": "{}", "index": {})",
                                                one.type, one.index),
                                    R"(, "environment": "cloud")")},
               {"SLUICE_TOKEN_FILE", place.path}})
             .ValueOrThrow();
    CAPTURE(one.rank);
    CHECK(info.rank == one.rank);
    CHECK(info.size == 4);
    CHECK(info.local_rank == one.local_rank);
    CHECK(info.local_size == one.local_size);
    CHECK(info.own_port == one.own_port);
    CHECK(info.host == "127.0.0.1");
    CHECK(info.port == place.port);
    CHECK(info.token == std::string(64, 'f'));
  }
  const auto evaluator =
      *Read({{"TF_CONFIG",
              Config(cluster, R"("type": "evaluator", "index": 0)")}})
           .ValueOrThrow();
  CHECK(evaluator.evaluates);
  CHECK(evaluator.size == 1);
}

TEST_CASE("servers of a cluster are known to all, and one to itself") {
  const Place place;
  const std::string cluster = R"("chief": ["a:1"], "worker": ["b:2", "c:3"],
                                 "ps": ["b:4", "d:5"])";
  struct Case {
    std::string type;
    int index, rank, server, local_size;
  };
  for (const Case& one : std::vector<Case>{{"chief", 0, 0, -1, 1},
                                           {"worker", 1, 2, -1, 1},
                                           {"ps", 0, -1, 0, 1},
                                           {"ps", 1, -1, 1, 1}}) {
    Variables variables = {
        {"SLUICE_CONFIG",
         Config(cluster, fmt::format(R"("type": "{}", "index": {})", one.type,
                                     one.index))},
        {"SLUICE_TOKEN_FILE", place.path}};
    const auto info = *Read(variables).ValueOrThrow();
    CAPTURE(one.type);
    CHECK(info.rank == one.rank);
    CHECK(info.size == 3);
    CHECK(info.server == one.server);
    CHECK(info.local_size == one.local_size);
    CHECK(info.ends_servers);
    CHECK_FALSE(info.servers_return);
    CHECK_FALSE(info.evaluates);
    CHECK(info.token == std::string(64, 'f'));
    REQUIRE(info.servers.size() == 2);
    CHECK(info.servers[1].host == "d");
    CHECK(info.servers[1].port == 5);
    variables["SLUICE_SERVERS_RETURN"] = "1";
    CHECK((*Read(variables).ValueOrThrow()).servers_return);
    variables["SLUICE_SERVERS_RETURN"] = "yes";
    CHECK(Has(Refused(variables), "SLUICE_SERVERS_RETURN=yes is neither"));
  }
  // One worker alone has somebody to know, too.
  const auto alone =
      *Read({{"SLUICE_CONFIG", Config(R"("worker": ["h:1"], "ps": ["h:2"])",
                                      R"("type": "worker", "index": 0)")},
             {"SLUICE_TOKEN_FILE", place.path}})
           .ValueOrThrow();
  CHECK(alone.token.size() == 64);
}

TEST_CASE("SLUICE_CONFIG names the secrets' files") {
  const Place place;
  const std::string cluster = R"("worker": ["127.0.0.1:1", "127.0.0.1:2"])";
  const std::string task = R"("type": "worker", "index": 1)";
  const auto with = [&](const std::string& path) {
    return Variables{
        {"SLUICE_CONFIG",
         Config(cluster, task, fmt::format(R"(, "token_file": "{}")", path))}};
  };
  CHECK((*Read(with(place.path)).ValueOrThrow()).token.size() == 64);
  CHECK(Has(Refused(with(place.folder / "none")), "cannot be read"));
  chmod(place.path.c_str(), 0640);
  CHECK(Has(Refused(with(place.path)), "chmod 600"));
  chmod(place.path.c_str(), 0600);
  std::ofstream(place.path) << "short";
  CHECK(Has(Refused(with(place.path)), "5 characters"));
  CHECK(
      Has(Refused({{"SLUICE_CONFIG", Config(cluster, task,
                                            R"(, "credentials": {"ca": "/no/ca",
                                "certificate": "/no/c", "key": "/no/k"})")}}),
          "/no/ca"));
  // One worker alone knows itself.
  const auto alone =
      *Read({{"SLUICE_CONFIG", Config(R"("worker": ["h:1"])",
                                      R"("type": "worker", "index": 0)")}})
           .ValueOrThrow();
  CHECK(alone.size == 1);
}

TEST_CASE("what makes no sense in a cluster is named") {
  const std::string task = R"("type": "worker", "index": 0)";
  struct Bad {
    std::string text, part;
  };
  for (const Bad& bad : std::vector<Bad>{
           {"", "SLUICE_CONFIG"},
           {"{", "SLUICE_CONFIG"},
           {"[]", "SLUICE_CONFIG"},
           {R"({"cluster": {}})", "task"},
           {Config(R"("worker": ["a"])", task), "'a' is not host:port"},
           {Config(R"("worker": ["a:0"])", task), "'a:0'"},
           {Config(R"("worker": ["a:65536"])", task), "'a:65536'"},
           {Config(R"("worker": ["a:1 "])", task), "'a:1 '"},
           {Config(R"("worker": ["a:b:1"])", task), "'a:b:1'"},
           {Config(R"("worker": [7])", task), "SLUICE_CONFIG"},
           {Config(R"("worker": {"0": "a:1", "2": "c:1"})", task),
            "job 'worker' is no list"},
           {Config(R"("worker": "a:1")", task), "job 'worker' is no list"},
           {Config(R"("worker": ["a:1", "a:1"])", task), "two tasks are at"},
           {Config(R"("chef": ["a:1"])", task), "job 'chef' is none of"},
           {Config(R"("worker": ["a:1"])", R"("type": "worker", "index": 1)"),
            "worker 1, but the cluster has 1"},
           {Config(R"("worker": ["a:1"])", R"("type": "worker", "index": -1)"),
            "index is -1"},
           {Config(R"("worker": ["a:1"])", R"("type": "worker", "index": "x")"),
            "index is"},
           {Config(R"("worker": ["a:1"])",
                   R"("type": "worker", "index": 4294967296)"),
            "index is 4294967296"},
           {Config(R"("worker": ["a:1"])",
                   R"("type": "worker", "index": 18446744073709551615)"),
            "index is 18446744073709551615"},
           {Config(R"("worker": ["a:1"])", R"("type": "chief", "index": 0)"),
            "chief 0, but the cluster has 0"},
           {Config(R"("ps": ["b:1"])", R"("type": "ps", "index": 0)"),
            "no chief and no worker"},
           {Config(R"("worker": ["a:1"], "ps": ["b:1"])",
                   R"("type": "ps", "index": 1)"),
            "ps 1, but the cluster has 1"}}) {
    CAPTURE(bad.text);
    CHECK(Has(Refused({{"SLUICE_CONFIG", bad.text}}), bad.part));
  }
}

Variables OpenMpi(int rank, int size, int local_size) {
  return {{"OMPI_COMM_WORLD_SIZE", std::to_string(size)},
          {"OMPI_COMM_WORLD_RANK", std::to_string(rank)},
          {"OMPI_COMM_WORLD_LOCAL_SIZE", std::to_string(local_size)},
          {"OMPI_COMM_WORLD_LOCAL_RANK", std::to_string(rank % local_size)},
          {"PMIX_NAMESPACE", "prterun-1234@1"}};
}

TEST_CASE("Open MPI's processes of one host meet by the job's number") {
  const Place place;
  int port = 0;
  for (int rank = 0; rank < 3; ++rank) {
    Variables variables = OpenMpi(rank, 3, 3);
    variables["SLUICE_TOKEN_FILE"] = place.path;
    const auto info = *Read(variables).ValueOrThrow();
    CHECK(info.rank == rank);
    CHECK(info.size == 3);
    CHECK(info.local_rank == rank);
    CHECK(info.host == "127.0.0.1");
    if (port == 0) port = info.port;
    CHECK(info.port == port);
    variables["PMIX_NAMESPACE"] = "prterun-1235@1";
    CHECK((*Read(variables).ValueOrThrow()).port != port);
  }
}

TEST_CASE("Open MPI's processes of several hosts are told where to meet") {
  const Place place;
  Variables variables = OpenMpi(3, 4, 2);
  variables["SLUICE_TOKEN_FILE"] = place.path;
  CHECK(Has(Refused(variables), "does not say where rank 0 is"));
  variables["SLUICE_COORDINATOR"] = "h0:4000";
  const auto info = *Read(variables).ValueOrThrow();
  CHECK(info.host == "h0");
  CHECK(info.port == 4000);
  CHECK(info.local_rank == 1);
  variables["SLUICE_COORDINATOR"] = "h0";
  CHECK(Has(Refused(variables), "'h0' is not host:port"));
  for (const auto& [name, value] : OpenMpi(0, 1, 1)) {
    if (name == "PMIX_NAMESPACE") continue;
    Variables spoiled = OpenMpi(0, 1, 1);
    spoiled[name] = "x";
    CHECK(Has(Refused(spoiled), name + "=x"));
  }
  Variables beyond = OpenMpi(1, 4, 4);
  beyond["OMPI_COMM_WORLD_RANK"] = "4";
  CHECK(Has(Refused(beyond), "rank 4 of 4"));
}

TEST_CASE("Slurm's tasks meet at the first node of their step") {
  const Place place;
  struct Case {
    std::string nodes, first, tasks;
    int node, local_size;
  };
  for (const Case& one :
       std::vector<Case>{{"n1,n2", "n1", "4(x2)", 1, 4},
                         {"n[01-04]", "n01", "1(x3),5", 3, 5},
                         {"n[7,9-11]x,m", "n7x", "2,1(x4)", 2, 1},
                         {"alone", "alone", "8", 0, 8},
                         {"a,n[1-2]", "a", "1,2(x2)", 1, 2}}) {
    CAPTURE(one.nodes);
    const auto info = *Read({{"SLURM_STEP_ID", "2"},
                             {"SLURM_JOB_ID", "41"},
                             {"SLURM_STEP_NUM_TASKS", "8"},
                             {"SLURM_PROCID", "5"},
                             {"SLURM_LOCALID", "0"},
                             {"SLURM_NODEID", std::to_string(one.node)},
                             {"SLURM_STEP_TASKS_PER_NODE", one.tasks},
                             {"SLURM_STEP_NODELIST", one.nodes},
                             {"SLUICE_TOKEN_FILE", place.path}})
                           .ValueOrThrow();
    CHECK(info.host == one.first);
    CHECK(info.port == 20'000 + 41 * 31 + 2);
    CHECK(info.local_size == one.local_size);
    CHECK(info.rank == 5);
  }
}

// The one with local rank 0 at the port that is given.
TEST_CASE("what mpirun or srun has started listens where the user says") {
  const Place place;
  for (const int rank : {0, 2, 5}) {
    Variables mpi = OpenMpi(rank, 6, 3);
    mpi["SLUICE_TOKEN_FILE"] = place.path;
    mpi["SLUICE_COORDINATOR"] = "h0:5000";
    // Kubernetes's, of a Service of this name.
    mpi["SLUICE_PORT"] = "tcp://10.0.0.1:80";
    CHECK((*Read(mpi).ValueOrThrow()).own_port == (rank == 0 ? 5000 : 0));
    mpi["SLUICE_FIRST_PORT"] = "4000";
    const auto placed = *Read(mpi).ValueOrThrow();
    CHECK(placed.port == 5000);
    CHECK(placed.own_port == (rank == 0 ? 5000 : 4002));
    Variables srun = {{"SLURM_STEP_ID", "2"},
                      {"SLURM_JOB_ID", "41"},
                      {"SLURM_STEP_NUM_TASKS", "6"},
                      {"SLURM_PROCID", std::to_string(rank)},
                      {"SLURM_LOCALID", std::to_string(rank % 3)},
                      {"SLURM_NODEID", std::to_string(rank / 3)},
                      {"SLURM_STEP_TASKS_PER_NODE", "3(x2)"},
                      {"SLURM_STEP_NODELIST", "n[1-2]"},
                      {"SLUICE_TOKEN_FILE", place.path}};
    CHECK((*Read(srun).ValueOrThrow()).own_port ==
          (rank == 0 ? 20'000 + 41 * 31 + 2 : 0));
    srun["SLUICE_FIRST_PORT"] = "4000";
    const auto info = *Read(srun).ValueOrThrow();
    CHECK(info.host == "n1");
    CHECK(info.port == 4000);
    CHECK(info.own_port == 4000 + rank % 3);
  }
  // Of one host, too.
  Variables here = OpenMpi(1, 3, 3);
  here["SLUICE_TOKEN_FILE"] = place.path;
  here["SLUICE_FIRST_PORT"] = "4000";
  CHECK((*Read(here).ValueOrThrow()).port == 4000);
  CHECK((*Read(here).ValueOrThrow()).own_port == 4001);
  for (const char* bad : {"", "0", "-1", "x", "4000x", "70000"}) {
    here["SLUICE_FIRST_PORT"] = bad;
    CHECK(Has(Refused(here), fmt::format("SLUICE_FIRST_PORT={}", bad)));
  }
  here["SLUICE_FIRST_PORT"] = "65535";
  CHECK(Has(Refused(here), "local rank 1 at port 65536"));
}

TEST_CASE(
    "a list of addresses says where each listens, and nothing else does") {
  const Place place;
  const auto info =
      *Read({{"SLUICE_CONFIG", Config(R"("worker": ["a:4001", "b:4002"])",
                                      R"("type": "worker", "index": 1)")},
             {"SLUICE_FIRST_PORT", "5000"},
             {"SLUICE_TOKEN_FILE", place.path}})
           .ValueOrThrow();
  CHECK(info.port == 4001);
  CHECK(info.own_port == 4002);
}

// As of a shell that salloc has opened.
TEST_CASE("one task of a step of Slurm's own is alone") {
  const auto info = *Read({{"SLURM_STEP_ID", "4294967290"},
                           {"SLURM_JOB_ID", "4294967295"},
                           {"SLURM_STEP_NUM_TASKS", "1"},
                           {"SLURM_PROCID", "0"},
                           {"SLURM_LOCALID", "0"},
                           {"SLURM_NODEID", "0"},
                           {"SLURM_STEP_TASKS_PER_NODE", "1"},
                           {"SLURM_STEP_NODELIST", "n1"}})
                         .ValueOrThrow();
  CHECK(info.size == 1);
}

TEST_CASE("two that say who this is are refused, but mpirun under srun") {
  const Place place;
  const std::string config =
      Config(R"("worker": ["a:1"])", R"("type": "worker", "index": 0)");
  CHECK(Has(Refused({{"SLUICE_CONFIG", config}, {"TF_CONFIG", config}}),
            "SLUICE_CONFIG and TF_CONFIG both say"));
  Variables both = OpenMpi(0, 1, 1);
  both["TF_CONFIG"] = config;
  CHECK(Has(Refused(both), "unset TF_CONFIG or OMPI_COMM_WORLD_SIZE"));
  Variables nested = OpenMpi(0, 1, 1);
  nested["SLURM_STEP_ID"] = "0";
  CHECK((*Read(nested).ValueOrThrow()).size == 1);
}

}  // namespace
}  // namespace sluice::dist
