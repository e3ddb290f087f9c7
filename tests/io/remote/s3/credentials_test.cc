// Settings from the environment and profile files: which comes first, what is
// missing, and that nothing secret is said.
#include "io/remote/s3/credentials.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <map>
#include <string>
#include <string_view>

#include "io/files/file.h"
#include "tests/support/temporary_folder.h"

namespace sluice::remote {
namespace {

// A home of its own, and variables.
class Machine {
 public:
  Machine() { variables["HOME"] = home_.path(); }

  void Write(const std::string& name, std::string_view text) {
    FileSystem& files = FileSystem::Posix();
    ThrowIfError(files.MakeDirectories(ParentDirectory(home_ / name)));
    ThrowIfError(files.WriteAtomically(home_ / name, text));
  }
  std::string Path(const std::string& name) const { return home_ / name; }

  Result<S3Settings> Load() const {
    return LoadS3Settings(
        [this](const char* name) -> std::optional<std::string> {
          const auto found = variables.find(name);
          if (found == variables.end()) return std::nullopt;
          return found->second;
        });
  }
  S3Settings Loaded() const { return Load().ValueOrThrow(); }
  // "access/secret/token", or "none".
  std::string Keys() const {
    const auto credentials = Loaded().credentials;
    if (!credentials) return "none";
    return credentials->access_key + "/" + credentials->secret_key + "/" +
           credentials->session_token;
  }
  // Of an error, after a look for secrets.
  std::string Message(Code code) const {
    const Status status = Load().status();
    CHECK(status.code() == code);
    CHECK(status.message().find("HIDDEN") == std::string::npos);
    CHECK(status.message().find('\n') == std::string::npos);
    return status.message();
  }

  std::map<std::string, std::string> variables;

 private:
  testing::TemporaryFolder home_;
};

TEST_CASE(
    "keys come from the environment, then the credentials file, then "
    "the config file") {
  Machine machine;
  machine.Write(".aws/config",
                "[default]\naws_access_key_id = C\n"
                "aws_secret_access_key = C2\n");
  CHECK(machine.Keys() == "C/C2/");
  machine.Write(".aws/credentials",
                "[default]\naws_access_key_id = F\n"
                "aws_secret_access_key = F2\naws_session_token = F3\n");
  CHECK(machine.Keys() == "F/F2/F3");
  machine.variables["AWS_ACCESS_KEY_ID"] = "E";
  machine.variables["AWS_SECRET_ACCESS_KEY"] = "E2";
  CHECK(machine.Keys() == "E/E2/");
  machine.variables["AWS_SESSION_TOKEN"] = "E3";
  CHECK(machine.Keys() == "E/E2/E3");
  machine.variables["SLUICE_S3_ANONYMOUS"] = "1";
  CHECK(machine.Keys() == "none");
  machine.variables["SLUICE_S3_ANONYMOUS"] = "0";
  CHECK(machine.Keys() == "E/E2/E3");
}

TEST_CASE("an empty variable is an unset one") {
  Machine machine;
  machine.Write(".aws/credentials",
                "[default]\naws_access_key_id = F\n"
                "aws_secret_access_key = F2\n");
  for (const char* name :
       {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN",
        "AWS_PROFILE", "AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE",
        "AWS_REGION", "AWS_ENDPOINT_URL", "SLUICE_S3_ANONYMOUS"}) {
    machine.variables[name] = "";
  }
  CHECK(machine.Keys() == "F/F2/");
  CHECK(machine.Loaded().region == "us-east-1");
}

TEST_CASE("AWS_PROFILE chooses the profile in both files") {
  Machine machine;
  machine.Write(".aws/credentials",
                "[default]\naws_access_key_id = D\n"
                "aws_secret_access_key = D2\n[p q]\naws_access_key_id = P\n"
                "aws_secret_access_key = P2\n");
  machine.Write(".aws/config",
                "[default]\nregion = a\n[profile 'p q']\nregion = b\n"
                "[profile only]\naws_access_key_id = O\n"
                "aws_secret_access_key = O2\n");
  CHECK(machine.Keys() == "D/D2/");
  CHECK(machine.Loaded().region == "a");
  machine.variables["AWS_PROFILE"] = "p q";
  CHECK(machine.Keys() == "P/P2/");
  CHECK(machine.Loaded().region == "b");
  machine.variables["AWS_PROFILE"] = "only";
  CHECK(machine.Keys() == "O/O2/");
  CHECK(machine.Loaded().region == "us-east-1");
  machine.variables["AWS_PROFILE"] = "ty\tpo";
  CHECK(machine.Message(Code::kNotFound) ==
        "AWS_PROFILE is 'ty\\x09po', a profile that neither '" +
            machine.Path(".aws/credentials") + "' nor '" +
            machine.Path(".aws/config") + "' has");
}

TEST_CASE("the files may be elsewhere") {
  Machine machine;
  machine.Write("c", "[default]\naws_access_key_id = A\n");
  machine.Write("d/e", "[default]\nregion = r\n");
  machine.variables["AWS_SHARED_CREDENTIALS_FILE"] = "~/c";
  machine.variables["AWS_CONFIG_FILE"] = machine.Path("d/e");
  machine.variables["SLUICE_S3_ANONYMOUS"] = "1";
  CHECK(machine.Loaded().region == "r");
  machine.variables.erase("SLUICE_S3_ANONYMOUS");
  CHECK(machine.Message(Code::kFailedPrecondition) ==
        "profile 'default' of '" + machine.Path("c") +
            "' has an access key without its secret key");
  // A folder, and what is not there, are no files.
  machine.variables["AWS_SHARED_CREDENTIALS_FILE"] = machine.Path("d");
  machine.variables["AWS_CONFIG_FILE"] = "/nowhere/f";
  CHECK(machine.Message(Code::kFailedPrecondition).find("no credentials") == 0);
}

TEST_CASE("what is missing is said with what to do") {
  Machine machine;
  CHECK(machine.Message(Code::kFailedPrecondition) ==
        "no credentials for s3://: set AWS_ACCESS_KEY_ID and "
        "AWS_SECRET_ACCESS_KEY, or give profile 'default' keys in '" +
            machine.Path(".aws/credentials") +
            "', or set SLUICE_S3_ANONYMOUS=1 for public buckets");
  machine.variables["AWS_ACCESS_KEY_ID"] = "HIDDEN";
  CHECK(machine.Message(Code::kFailedPrecondition) ==
        "the environment has an access key without its secret key");
  machine.variables.erase("AWS_ACCESS_KEY_ID");
  machine.variables["AWS_SECRET_ACCESS_KEY"] = "HIDDEN";
  CHECK(machine.Message(Code::kFailedPrecondition) ==
        "the environment has a secret key without its access key");
  machine.variables["SLUICE_S3_ANONYMOUS"] = "yes";
  CHECK(machine.Message(Code::kInvalidArgument) ==
        "SLUICE_S3_ANONYMOUS is 'yes', wanted 1 or 0");
}

TEST_CASE("keys that would end a header are no keys") {
  for (const char* name :
       {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"}) {
    for (const char* value : {"HIDDEN\n", "HIDDEN\r\nx: y", "SEC RET",
                              "HIDDEN\xc3\xa9", "HIDDEN\x7f"}) {
      Machine machine;
      machine.variables["AWS_ACCESS_KEY_ID"] = "A";
      machine.variables["AWS_SECRET_ACCESS_KEY"] = "S";
      machine.variables[name] = value;
      CHECK(machine.Message(Code::kInvalidArgument) ==
            "the environment has credentials with a space, a line's end or "
            "another character that no key has");
    }
  }
}

TEST_CASE("profiles of other kinds are refused by name") {
  Machine machine;
  const std::string end =
      ", which Sluice cannot; set AWS_ACCESS_KEY_ID and "
      "AWS_SECRET_ACCESS_KEY instead";
  // Even beside keys, which are for taking the role.
  machine.Write(".aws/credentials",
                "[default]\naws_access_key_id = A\naws_secret_access_key = "
                "HIDDEN\nrole_arn = r\n");
  CHECK(machine.Message(Code::kFailedPrecondition) ==
        "profile 'default' takes a role (role_arn)" + end);
  machine.Write(".aws/credentials", "");
  for (const std::string option :
       {"sso_session", "sso_start_url", "credential_process"}) {
    machine.Write(".aws/config", fmt::format("[default]\n{} = x\n", option));
    CHECK(machine.Message(Code::kFailedPrecondition) ==
          fmt::format("profile 'default' gets its keys by {}{}", option, end));
  }
  machine.variables["AWS_ACCESS_KEY_ID"] = "E";
  machine.variables["AWS_SECRET_ACCESS_KEY"] = "E2";
  CHECK(machine.Keys() == "E/E2/");
}

TEST_CASE("a file that cannot be understood is an error, whoever has keys") {
  Machine machine;
  machine.variables["SLUICE_S3_ANONYMOUS"] = "1";
  machine.Write(".aws/credentials", "HIDDEN\n");
  CHECK(machine.Message(Code::kInvalidArgument) ==
        "'" + machine.Path(".aws/credentials") +
            "', line 1: no [section] is before it");
  machine.Write(".aws/credentials", std::string((1 << 20) + 1, '\n'));
  CHECK(machine.Message(Code::kInvalidArgument) ==
        "'" + machine.Path(".aws/credentials") +
            "' is too large for a profile file");
}

TEST_CASE("the region and the endpoint have an order of their own") {
  Machine machine;
  machine.variables["SLUICE_S3_ANONYMOUS"] = "1";
  CHECK(machine.Loaded().region == "us-east-1");
  CHECK(machine.Loaded().endpoint.empty());
  machine.Write(".aws/config",
                "[default]\nregion = cn-north-4\n"
                "endpoint_url = https://profile\n");
  CHECK(machine.Loaded().region == "cn-north-4");
  CHECK(machine.Loaded().endpoint == "https://profile");
  machine.Write(".aws/config",
                "[default]\nendpoint_url = https://profile\n"
                "services = mine\n[services mine]\ns3 =\n  endpoint_url = "
                "https://service\ndynamodb =\n  endpoint_url = https://no\n");
  CHECK(machine.Loaded().endpoint == "https://service");
  machine.variables["AWS_ENDPOINT_URL"] = "http://all:9000";
  CHECK(machine.Loaded().endpoint == "http://all:9000");
  machine.variables["AWS_ENDPOINT_URL_S3"] = "http://s3:9000";
  CHECK(machine.Loaded().endpoint == "http://s3:9000");
  machine.variables["AWS_DEFAULT_REGION"] = "eu-west-1";
  CHECK(machine.Loaded().region == "eu-west-1");
  machine.variables["AWS_REGION"] = "eu-west-2";
  CHECK(machine.Loaded().region == "eu-west-2");
  for (const char* region : {"a.b", "a/b", "a b", "evil.com/"}) {
    machine.variables["AWS_REGION"] = region;
    CHECK(machine.Message(Code::kInvalidArgument) ==
          "the S3 region '" + std::string(region) +
              "' is no region's name, wanted one like us-east-1");
  }
}

TEST_CASE("the profile says where buckets are named") {
  Machine machine;
  machine.variables["SLUICE_S3_ANONYMOUS"] = "1";
  CHECK(machine.Loaded().addressing == Addressing::kAuto);
  const auto write = [&](const std::string& style) {
    machine.Write(".aws/config",
                  "[default]\ns3 =\n  max_queue_size = 1\n  "
                  "addressing_style = " +
                      style + "\n");
  };
  write("path");
  CHECK(machine.Loaded().addressing == Addressing::kPath);
  write("virtual");
  CHECK(machine.Loaded().addressing == Addressing::kVirtual);
  write("auto");
  CHECK(machine.Loaded().addressing == Addressing::kAuto);
  write("other");
  CHECK(machine.Message(Code::kInvalidArgument) ==
        "profile 'default' has the addressing_style 'other', wanted path, "
        "virtual or auto");
}

TEST_CASE("the process has an environment") {
  const Environment environment = ProcessEnvironment();
  CHECK(environment("PATH").has_value());
  CHECK(!environment("SLUICE_NO_SUCH_VARIABLE").has_value());
}

}  // namespace
}  // namespace sluice::remote
