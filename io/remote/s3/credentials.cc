#include "io/remote/s3/credentials.h"

#include <algorithm>
#include <cstdlib>
#include <initializer_list>
#include <string_view>
#include <utility>

#include "io/files/file.h"
#include "io/files/open_files.h"
#include "io/remote/http/ascii.h"
#include "io/remote/s3/profiles.h"

namespace sluice::remote {

namespace {

constexpr size_t kMaxFile = size_t{1} << 20;

// The first variable that is set; empty for none.
std::string FirstOf(const Environment& environment,
                    std::initializer_list<const char*> names) {
  for (const char* name : names) {
    std::string value = environment(name).value_or("");
    if (!value.empty()) return value;
  }
  return {};
}

std::string ValueOf(const Options& options, std::string_view name) {
  const auto found = options.find(name);
  return found == options.end() ? "" : found->second;
}

std::string PathOf(const Environment& environment, const char* variable,
                   std::string_view in_home) {
  std::string path = environment(variable).value_or("");
  if (path.empty()) path = "~/" + std::string(in_home);
  if (!path.starts_with("~/")) return path;
  return FirstOf(environment, {"HOME"}) + path.substr(1);
}

// No sections where there is no such file, or none that we may read: the
// environment alone is enough for many.
Result<Sections> ReadIni(const std::string& path) {
  const auto text = FileSystem::Posix().ReadPrefix(path, kMaxFile + 1);
  if (!text.ok()) return Sections();
  if (text->size() > kMaxFile) {
    return InvalidArgument("'" + Escaped(path) +
                           "' is too large for a profile file");
  }
  return ParseIni(*text, path);
}

// The profile as each of the files has it.
struct Profile {
  std::string name, credentials_path, config_path;
  Options credentials, config;
  Options services;  // the config's services section that it names

  // The credentials file comes first.
  std::string Value(std::string_view option) const {
    std::string value = ValueOf(credentials, option);
    return value.empty() ? ValueOf(config, option) : value;
  }
};

Result<Profile> ReadProfile(const Environment& environment) {
  Profile profile;
  const std::string chosen = FirstOf(environment, {"AWS_PROFILE"});
  profile.name = chosen.empty() ? "default" : chosen;
  profile.credentials_path =
      PathOf(environment, "AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials");
  profile.config_path = PathOf(environment, "AWS_CONFIG_FILE", ".aws/config");
  SLUICE_ASSIGN_OR_RETURN(const Sections credentials,
                          ReadIni(profile.credentials_path));
  SLUICE_ASSIGN_OR_RETURN(const Sections config, ReadIni(profile.config_path));
  Sections profiles = SectionsOf(config, "profile");
  if (const auto found = config.find("default"); found != config.end()) {
    profiles.insert(*found);
  }
  const auto in_credentials = credentials.find(profile.name);
  const auto in_config = profiles.find(profile.name);
  if (in_credentials != credentials.end()) {
    profile.credentials = in_credentials->second;
  }
  if (in_config != profiles.end()) profile.config = in_config->second;
  if (!chosen.empty() && in_credentials == credentials.end() &&
      in_config == profiles.end()) {
    return NotFound("AWS_PROFILE is '" + Escaped(chosen) +
                    "', a profile that neither '" +
                    Escaped(profile.credentials_path) + "' nor '" +
                    Escaped(profile.config_path) + "' has");
  }
  const Sections services = SectionsOf(config, "services");
  const auto named = services.find(profile.Value("services"));
  if (named != services.end()) profile.services = named->second;
  return profile;
}

// None where neither key is there. `where` begins the errors: "the environment
// has".
Result<std::optional<Credentials>> Whole(Credentials credentials,
                                         const std::string& where) {
  const bool access = !credentials.access_key.empty();
  const bool secret = !credentials.secret_key.empty();
  if (!access && !secret) return std::optional<Credentials>();
  if (!access || !secret) {
    return FailedPrecondition(where + (access ? " an access key without its "
                                                "secret key"
                                              : " a secret key without its "
                                                "access key"));
  }
  for (const std::string* text :
       {&credentials.access_key, &credentials.secret_key,
        &credentials.session_token}) {
    // They would end the header they are sent in, or be no key at all.
    if (!std::all_of(text->begin(), text->end(),
                     [](char c) { return c > ' ' && c < '\x7f'; })) {
      return InvalidArgument(where +
                             " credentials with a space, a line's end or "
                             "another character that no key has");
    }
  }
  return std::optional(std::move(credentials));
}

Result<std::optional<Credentials>> OfOptions(const Options& options,
                                             const std::string& path,
                                             const std::string& profile) {
  std::string token = ValueOf(options, "aws_security_token");  // its old name
  if (token.empty()) token = ValueOf(options, "aws_session_token");
  return Whole(
      {ValueOf(options, "aws_access_key_id"),
       ValueOf(options, "aws_secret_access_key"), std::move(token)},
      "profile '" + Escaped(profile) + "' of '" + Escaped(path) + "' has");
}

Result<std::optional<Credentials>> FindCredentials(
    const Environment& environment, const Profile& profile) {
  const std::string anonymous = FirstOf(environment, {"SLUICE_S3_ANONYMOUS"});
  if (anonymous == "1") return std::optional<Credentials>();
  if (!anonymous.empty() && anonymous != "0") {
    return InvalidArgument("SLUICE_S3_ANONYMOUS is '" + Escaped(anonymous) +
                           "', wanted 1 or 0");
  }
  SLUICE_ASSIGN_OR_RETURN(
      std::optional<Credentials> found,
      Whole({FirstOf(environment, {"AWS_ACCESS_KEY_ID"}),
             FirstOf(environment, {"AWS_SECRET_ACCESS_KEY"}),
             FirstOf(environment, {"AWS_SECURITY_TOKEN", "AWS_SESSION_TOKEN"})},
            "the environment has"));
  if (found) return found;
  constexpr std::string_view kInstead =
      "; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY instead";
  // Its own keys, if any, are there to take the role with.
  if (!profile.Value("role_arn").empty()) {
    return FailedPrecondition("profile '" + Escaped(profile.name) +
                              "' takes a role (role_arn), which Sluice cannot" +
                              std::string(kInstead));
  }
  SLUICE_ASSIGN_OR_RETURN(
      found,
      OfOptions(profile.credentials, profile.credentials_path, profile.name));
  if (found) return found;
  SLUICE_ASSIGN_OR_RETURN(
      found, OfOptions(profile.config, profile.config_path, profile.name));
  if (found) return found;
  for (const char* option :
       {"sso_session", "sso_start_url", "credential_process"}) {
    if (profile.Value(option).empty()) continue;
    return FailedPrecondition("profile '" + Escaped(profile.name) +
                              "' gets its keys by " + option +
                              ", which Sluice cannot" + std::string(kInstead));
  }
  return FailedPrecondition(
      "no credentials for s3://: set AWS_ACCESS_KEY_ID and "
      "AWS_SECRET_ACCESS_KEY, or give profile '" +
      Escaped(profile.name) + "' keys in '" +
      Escaped(profile.credentials_path) +
      "', or set SLUICE_S3_ANONYMOUS=1 for public buckets");
}

Result<std::string> FindRegion(const Environment& environment,
                               const Profile& profile) {
  std::string region =
      FirstOf(environment, {"AWS_REGION", "AWS_DEFAULT_REGION"});
  if (region.empty()) region = profile.Value("region");
  if (region.empty()) return std::string("us-east-1");
  // It becomes a part of a host's name.
  if (region.size() > 63 ||
      !std::all_of(region.begin(), region.end(),
                   [](char c) { return IsAlphanumeric(c) || c == '-'; })) {
    return InvalidArgument("the S3 region '" + Escaped(region) +
                           "' is no region's name, wanted one like us-east-1");
  }
  return region;
}

}  // namespace

Environment ProcessEnvironment() {
  return [](const char* name) -> std::optional<std::string> {
    const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe)
    if (value == nullptr) return std::nullopt;
    return value;
  };
}

Result<S3Settings> LoadS3Settings(const Environment& environment) {
  S3Settings settings;
  SLUICE_ASSIGN_OR_RETURN(const Profile profile, ReadProfile(environment));
  SLUICE_ASSIGN_OR_RETURN(settings.credentials,
                          FindCredentials(environment, profile));
  SLUICE_ASSIGN_OR_RETURN(settings.region, FindRegion(environment, profile));

  settings.endpoint =
      FirstOf(environment, {"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"});
  if (settings.endpoint.empty()) {
    settings.endpoint =
        ValueOf(NestedOptions(ValueOf(profile.services, "s3")), "endpoint_url");
  }
  if (settings.endpoint.empty()) {
    settings.endpoint = profile.Value("endpoint_url");
  }

  const std::string style =
      ValueOf(NestedOptions(profile.Value("s3")), "addressing_style");
  if (style == "path") {
    settings.addressing = Addressing::kPath;
  } else if (style == "virtual") {
    settings.addressing = Addressing::kVirtual;
  } else if (!style.empty() && style != "auto") {
    return InvalidArgument("profile '" + Escaped(profile.name) +
                           "' has the addressing_style '" + Escaped(style) +
                           "', wanted path, virtual or auto");
  }
  return settings;
}

}  // namespace sluice::remote
