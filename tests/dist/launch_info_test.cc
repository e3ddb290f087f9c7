#include "dist/launch_info.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "dist/net/authority.h"
#include "dist/net/credentials.h"
#include "dist/net/socket.h"
#include "dist/net/tls.h"
#include "tests/support/temporary_folder.h"

namespace sluice::dist {
namespace {

const std::string kToken(64, 'a');

constexpr const char* kNames[] = {
    "SLUICE_SIZE",       "SLUICE_RANK",           "SLUICE_LOCAL_SIZE",
    "SLUICE_LOCAL_RANK", "SLUICE_LISTEN_FD",      "SLUICE_TOKEN_FD",
    "SLUICE_PINNED",     "SLUICE_CREDENTIALS_FD", "SLUICE_SERVERS",
    "SLUICE_SERVER",     "SLUICE_SERVERS_RETURN", "SLUICE_ROSTER_FD"};
// Which a user may set, too.
constexpr const char* kUsers[] = {"SLUICE_COORDINATOR", "SLUICE_CERTIFICATES",
                                  "SLUICE_ALLOW_PLAINTEXT", "SLUICE_HOST",
                                  "SLUICE_FIRST_PORT"};

// A descriptor that gives the text and then its end.
int PipeWith(const std::string& text) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  REQUIRE(write(ends[1], text.data(), text.size()) ==
          static_cast<ssize_t>(text.size()));
  close(ends[1]);
  return ends[0];
}

bool IsOpen(int descriptor) {
  return fcntl(descriptor, F_GETFD) >= 0;
}

// The variables of a job's rank, and none in the environment afterwards.
struct Environment {
  explicit Environment(int rank) : token(PipeWith(kToken)) {
    variables = {{"SLUICE_SIZE", "4"},
                 {"SLUICE_RANK", std::to_string(rank)},
                 {"SLUICE_LOCAL_SIZE", "2"},
                 {"SLUICE_LOCAL_RANK", "1"},
                 {"SLUICE_COORDINATOR", "127.0.0.1:4000"},
                 {"SLUICE_TOKEN_FD", std::to_string(token)}};
    if (rank == 0) {
      variables["SLUICE_LISTEN_FD"] = std::to_string(listener.descriptor());
    }
  }
  ~Environment() {
    Clear();
    if (IsOpen(token)) close(token);
  }
  static void Clear() {
    for (const char* name : kNames) unsetenv(name);
    for (const char* name : kUsers) unsetenv(name);
  }
  Result<std::optional<LaunchInfo>> Read() const {
    Clear();
    for (const auto& [name, value] : variables) {
      setenv(name.c_str(), value.c_str(), 1);
    }
    return ReadLaunchInfo();
  }
  std::string ErrorOf() const {
    const auto info = Read();
    REQUIRE_FALSE(info.ok());
    CHECK(info.status().code() == Code::kInvalidArgument);
    return info.status().message();
  }

  Listener listener = Listener::Open("127.0.0.1").ValueOrThrow();
  int token;
  std::map<std::string, std::string> variables;
};

// The error where one variable of rank 1 is this.
std::string ErrorWith(const std::string& name, const std::string& value) {
  Environment environment(1);
  environment.variables[name] = value;
  return environment.ErrorOf();
}

TEST_CASE("without a launcher there is nothing") {
  for (const char* name : kNames) unsetenv(name);
  const auto info = ReadLaunchInfo();
  REQUIRE(info.ok());
  CHECK_FALSE(info->has_value());
}

TEST_CASE("of an elastic job the launcher says where to meet, later") {
  for (const int rank : {0, 1}) {
    int ends[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) == 0);
    Environment environment(rank);
    environment.variables.erase("SLUICE_COORDINATOR");
    environment.variables.erase("SLUICE_LISTEN_FD");
    environment.variables["SLUICE_ROSTER_FD"] = std::to_string(ends[0]);
    const std::string host = rank == 0 ? "" : "hostB";
    if (rank > 0) environment.variables["SLUICE_HOST"] = host;
    const auto info = environment.Read().ValueOrThrow();
    CHECK(info->roster_fd == ends[0]);
    CHECK(info->host == host);
    CHECK(info->rank == rank);
    CHECK(info->size == 4);
    CHECK(info->token == kToken);
    CHECK(info->listen_fd < 0);
    close(ends[0]);
    close(ends[1]);
  }
  CHECK(ErrorWith("SLUICE_ROSTER_FD", "x") ==
        "SLUICE_ROSTER_FD=x is not a number from 0");
  // A pipe, and a socket of a stream.
  for (const int kind : {0, 1}) {
    int ends[2];
    REQUIRE((kind == 0 ? pipe(ends)
                       : socketpair(AF_UNIX, SOCK_STREAM, 0, ends)) == 0);
    CHECK(ErrorWith("SLUICE_ROSTER_FD", std::to_string(ends[0])) ==
          "SLUICE_ROSTER_FD=" + std::to_string(ends[0]) +
              " is not the descriptor of a socket of packets");
    close(ends[0]);
    close(ends[1]);
  }
  Environment alone(1);
  alone.variables.erase("SLUICE_TOKEN_FD");
  int ends[2];
  REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) == 0);
  alone.variables["SLUICE_ROSTER_FD"] = std::to_string(ends[0]);
  CHECK(alone.ErrorOf() ==
        "SLUICE_TOKEN_FD not set, though other variables of a launcher are");
  close(ends[0]);
  close(ends[1]);
}

TEST_CASE("whether the processes have cores of their own") {
  for (const bool pinned : {false, true}) {
    Environment environment(1);
    if (pinned) environment.variables["SLUICE_PINNED"] = "1";
    CHECK(environment.Read().ValueOrThrow()->pinned == pinned);
  }
  for (const char* other : {"0", "yes", "", "2"}) {
    CHECK(ErrorWith("SLUICE_PINNED", other).find("SLUICE_PINNED") !=
          std::string::npos);
  }
}

TEST_CASE("what a launcher says") {
  const Environment environment(3);
  const auto info = environment.Read();
  REQUIRE(info.ok());
  REQUIRE(info->has_value());
  const LaunchInfo& job = **info;
  CHECK(job.size == 4);
  CHECK(job.rank == 3);
  CHECK(job.local_size == 2);
  CHECK(job.local_rank == 1);
  CHECK(job.host == "127.0.0.1");
  CHECK(job.port == 4000);
  CHECK(job.listen_fd == -1);
  CHECK(job.token == kToken);
  CHECK_FALSE(IsOpen(environment.token));
}

TEST_CASE("rank 0 has the listener, and keeps it open") {
  const Environment environment(0);
  const auto info = environment.Read();
  REQUIRE(info.ok());
  CHECK((*info)->listen_fd == environment.listener.descriptor());
  CHECK(IsOpen(environment.listener.descriptor()));
}

TEST_CASE("a job of one process meets nobody") {
  Environment environment(0);
  environment.variables = {{"SLUICE_SIZE", "1"},
                           {"SLUICE_RANK", "0"},
                           {"SLUICE_LOCAL_SIZE", "1"},
                           {"SLUICE_LOCAL_RANK", "0"}};
  const auto info = environment.Read();
  REQUIRE(info.ok());
  CHECK((*info)->size == 1);
  CHECK((*info)->host.empty());
  CHECK((*info)->token.empty());
  environment.variables["SLUICE_SIZE"] = "2";
  CHECK(environment.ErrorOf() ==
        "SLUICE_COORDINATOR, SLUICE_TOKEN_FD not set, though other variables "
        "of a launcher are");
}

TEST_CASE("each variable that is missing is named") {
  for (const auto& variable : Environment(0).variables) {
    Environment environment(0);
    environment.variables.erase(variable.first);
    CHECK(environment.ErrorOf() ==
          variable.first +
              " not set, though other variables of a launcher are");
  }
  for (const char* name : kNames) {
    // A user's word to any launcher.
    if (name == std::string("SLUICE_SERVERS_RETURN")) continue;
    Environment environment(1);
    environment.variables = {{name, "1"}};
    CHECK(environment.ErrorOf().find("not set") != std::string::npos);
  }
}

TEST_CASE("integers are only digits, and in range") {
  for (const char* text : {"", " 4", "4 ", "+4", "-1", "-0", "0x4", "4.0",
                           "four", "99999999999999999999", "2147483648"}) {
    for (const char* name : {"SLUICE_SIZE", "SLUICE_RANK", "SLUICE_LOCAL_SIZE",
                             "SLUICE_LOCAL_RANK", "SLUICE_TOKEN_FD"}) {
      const std::string error = ErrorWith(name, text);
      CHECK(error.starts_with(std::string(name) + "=" + text + " is not "));
    }
  }
  CHECK(ErrorWith("SLUICE_SIZE", "0") ==
        "SLUICE_SIZE=0 is not a number from 1");
  CHECK(ErrorWith("SLUICE_RANK", "4") ==
        "SLUICE_RANK=4 is not a number from 0 to 3");
  CHECK(ErrorWith("SLUICE_LOCAL_SIZE", "5") ==
        "SLUICE_LOCAL_SIZE=5 is not a number from 1 to 4");
  CHECK(ErrorWith("SLUICE_LOCAL_RANK", "2") ==
        "SLUICE_LOCAL_RANK=2 is not a number from 0 to 1");
}

// Of our launcher's processes and of others' alike.
TEST_CASE("plaintext is allowed by 1 and by nothing else") {
  constexpr const char* kName = "SLUICE_ALLOW_PLAINTEXT";
  constexpr const char* kTwo =
      R"({"cluster": {"worker": ["127.0.0.1:1", "127.0.0.1:2"]},
          "task": {"type": "worker", "index": 1}})";
  for (const bool ours : {true, false}) {
    const auto with = [&](const char* value) {
      Environment environment(1);
      if (!ours) environment.variables = {{"TF_CONFIG", kTwo}};
      if (value != nullptr) environment.variables[kName] = value;
      auto info = environment.Read();
      unsetenv("TF_CONFIG");
      return info;
    };
    CHECK_FALSE((*with(nullptr).ValueOrThrow()).allow_plaintext);
    CHECK_FALSE((*with("0").ValueOrThrow()).allow_plaintext);
    CHECK((*with("1").ValueOrThrow()).allow_plaintext);
    for (const std::string value : {"", "yes", "true", "2", " 1"}) {
      const auto info = with(value.c_str());
      REQUIRE_FALSE(info.ok());
      CHECK(info.status().message() ==
            fmt::format("{}={} is neither 0 nor 1", kName, value));
    }
  }
}

TEST_CASE("coordinators are a host and a port") {
  struct Good {
    const char* text;
    const char* host;
    int port;
  };
  for (const Good& good : {Good{"a.b:1", "a.b", 1}, Good{"[::1]:2", "::1", 2},
                           Good{"10.0.0.1:65535", "10.0.0.1", 65535}}) {
    Environment environment(1);
    environment.variables["SLUICE_COORDINATOR"] = good.text;
    const auto info = environment.Read();
    REQUIRE(info.ok());
    CHECK((*info)->host == good.host);
    CHECK((*info)->port == good.port);
  }
  for (const char* text :
       {"", "host", ":4000", "host:", "host:0", "host:65536", "host:4000x",
        "host: 1", "::1:4000", "[]:4000", "[::1]4000", "[::1:4000", "a]:1"}) {
    CHECK(ErrorWith("SLUICE_COORDINATOR", text) ==
          std::string("SLUICE_COORDINATOR=") + text +
              " is not host:port, or [address]:port for IPv6");
  }
}

TEST_CASE("each process listens behind the first one of its host") {
  CHECK((*Environment(1).Read().ValueOrThrow()).own_port == 0);
  Environment placed(1);
  placed.variables["SLUICE_FIRST_PORT"] = "4000";
  CHECK((*placed.Read().ValueOrThrow()).own_port == 4001);
  Environment first(0);
  first.variables["SLUICE_LOCAL_RANK"] = "0";
  first.variables["SLUICE_FIRST_PORT"] = "65535";
  CHECK((*first.Read().ValueOrThrow()).own_port == 65535);
  for (const char* bad : {"", "0", "-1", "+1", "65536", "4294967297"}) {
    CHECK(ErrorWith("SLUICE_FIRST_PORT", bad)
              .starts_with(fmt::format("SLUICE_FIRST_PORT={} ", bad)));
  }
  CHECK(ErrorWith("SLUICE_FIRST_PORT", "65535") ==
        "SLUICE_FIRST_PORT=65535 puts local rank 1 at port 65536, of which "
        "there are "
        "65535");
  // A user's word alone is no launcher's.
  Environment alone(1);
  alone.variables = {{"SLUICE_FIRST_PORT", "4000"}};
  CHECK_FALSE(alone.Read().ValueOrThrow().has_value());
}

TEST_CASE("the listener is rank 0's and listens") {
  CHECK(ErrorWith("SLUICE_LISTEN_FD", "5") ==
        "SLUICE_LISTEN_FD is set for rank 1; only rank 0 listens");
  const int ordinary = PipeWith("");
  const int quiet = socket(AF_INET, SOCK_STREAM, 0);
  REQUIRE(quiet >= 0);
  for (const std::string& text :
       {std::to_string(ordinary), std::to_string(quiet),
        std::string("1000000")}) {
    Environment environment(0);
    environment.variables["SLUICE_LISTEN_FD"] = text;
    CHECK(environment.ErrorOf() ==
          "SLUICE_LISTEN_FD=" + text +
              " is not the descriptor of a socket that listens");
  }
  close(ordinary);
  close(quiet);
}

TEST_CASE("tokens are 64 hexadecimal digits and nothing else") {
  const std::string all = "0123456789abcdefABCDEF0123456789";
  const auto check_refused = [](const std::string& text) {
    const int descriptor = PipeWith(text);
    const std::string error =
        ErrorWith("SLUICE_TOKEN_FD", std::to_string(descriptor));
    CHECK(error.find("not a token of 64 hexadecimal digits") !=
          std::string::npos);
    CHECK(error.find("aa") == std::string::npos);  // it stays secret
    CHECK_FALSE(IsOpen(descriptor));
  };
  check_refused("");
  check_refused(std::string(63, 'a'));
  check_refused(kToken + "\n");
  check_refused(kToken + "a");
  check_refused(std::string(63, 'a').append("g"));
  check_refused(std::string(63, 'a').append(1, '\0'));
  check_refused(std::string(10'000, 'a'));
  CHECK(ErrorWith("SLUICE_TOKEN_FD", "1000000").find("cannot be read") !=
        std::string::npos);
  Environment environment(1);
  const std::string mixed = all + all;
  environment.variables["SLUICE_TOKEN_FD"] = std::to_string(PipeWith(mixed));
  const auto info = environment.Read();
  REQUIRE(info.ok());
  CHECK((*info)->token == mixed);
}

TEST_CASE("credentials come through a pipe or from a folder") {
  if (!HasTls()) return;
  const Credentials own = Authority::Create("job")
                              .ValueOrThrow()
                              .Issue("worker", 1, std::chrono::hours(1))
                              .ValueOrThrow();
  {
    Environment environment(1);
    CHECK_FALSE(environment.Read().ValueOrThrow()->credentials.has_value());
  }
  {
    Environment environment(1);
    environment.variables["SLUICE_CREDENTIALS_FD"] =
        std::to_string(PipeWith(TextOf(own)));
    const auto info = environment.Read().ValueOrThrow();
    CHECK(info->credentials->key == own.key);
    CHECK(info->credentials->certificate == own.certificate);
    CHECK_FALSE(info->allow_plaintext);
  }
  {
    const testing::TemporaryFolder folder;
    std::ofstream(folder / "ca.pem") << own.authority;
    std::ofstream(folder / "worker-1.pem") << own.certificate;
    const std::string key = folder / "worker-1.key";
    std::ofstream(key) << own.key;
    chmod(key.c_str(), 0600);
    Environment environment(1);
    environment.variables["SLUICE_CERTIFICATES"] = folder.path();
    environment.variables["SLUICE_ALLOW_PLAINTEXT"] = "1";
    const auto info = environment.Read().ValueOrThrow();
    CHECK(info->credentials->authority == own.authority);
    CHECK(info->allow_plaintext);
  }
  const std::string text = TextOf(own);
  const int descriptor = PipeWith(text.substr(0, text.size() / 2));
  const std::string error =
      ErrorWith("SLUICE_CREDENTIALS_FD", std::to_string(descriptor));
  CHECK(error.find("no credentials") != std::string::npos);
  CHECK_FALSE(IsOpen(descriptor));
}

TEST_CASE("a parameter server is told which it is, and has no rank") {
  const auto server = [] {
    auto environment = std::make_unique<Environment>(0);
    for (const char* name :
         {"SLUICE_RANK", "SLUICE_LOCAL_RANK", "SLUICE_COORDINATOR"}) {
      environment->variables.erase(name);
    }
    environment->variables["SLUICE_SERVERS"] = "127.0.0.1:4001,[::1]:4002";
    environment->variables["SLUICE_SERVER"] = "1";
    return environment;
  };
  {
    const auto environment = server();
    const auto info = environment->Read();
    REQUIRE(info.ok());
    CHECK((*info)->server == 1);
    CHECK((*info)->rank < 0);
    CHECK((*info)->size == 4);
    CHECK((*info)->listen_fd == environment->listener.descriptor());
    CHECK((*info)->token == kToken);
    REQUIRE((*info)->servers.size() == 2);
    CHECK((*info)->servers[1].host == "::1");
    CHECK((*info)->servers[1].port == 4002);
  }
  const auto error = [&](const std::string& name, const std::string& value) {
    const auto environment = server();
    if (value.empty()) {
      environment->variables.erase(name);
    } else {
      environment->variables[name] = value;
    }
    return environment->ErrorOf();
  };
  CHECK(error("SLUICE_SERVER", "2").find("0 to 1") != std::string::npos);
  for (const char* name :
       {"SLUICE_SERVERS", "SLUICE_LISTEN_FD", "SLUICE_TOKEN_FD"}) {
    CAPTURE(name);
    CHECK(error(name, "").find(name) != std::string::npos);
  }
  CHECK(error("SLUICE_SERVERS", "here,there").find("host:port") !=
        std::string::npos);
  CHECK(error("SLUICE_RANK", "0").find("has no rank") != std::string::npos);
}

TEST_CASE("a rank is told where the servers are") {
  Environment environment(1);
  environment.variables["SLUICE_SERVERS"] = "127.0.0.1:4001";
  const auto info = environment.Read();
  REQUIRE(info.ok());
  CHECK((*info)->server < 0);
  CHECK((*info)->servers.size() == 1);
  CHECK_FALSE((*info)->servers_return);
  Environment told(1);
  told.variables["SLUICE_SERVERS"] = "127.0.0.1:4001";
  told.variables["SLUICE_SERVERS_RETURN"] = "1";
  CHECK((*told.Read())->servers_return);
  Environment senseless(1);
  senseless.variables["SLUICE_SERVERS"] = "127.0.0.1:4001";
  senseless.variables["SLUICE_SERVERS_RETURN"] = "yes";
  CHECK(senseless.ErrorOf().find("SLUICE_SERVERS_RETURN=yes") !=
        std::string::npos);
}

}  // namespace
}  // namespace sluice::dist
