#include "tests/crosscheck/remote_answers.h"

#include <ctime>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "io/remote/http/url.h"
#include "io/remote/s3/credentials.h"
#include "io/remote/s3/profiles.h"
#include "io/remote/s3/s3_address.h"
#include "io/remote/s3/sigv4.h"

namespace sluice {

namespace {

using Json = nlohmann::json;

// As in profiles.
const std::pair<const char*, remote::Addressing> kStyles[] = {
    {"auto", remote::Addressing::kAuto},
    {"path", remote::Addressing::kPath},
    {"virtual", remote::Addressing::kVirtual}};

Json Sign(const Json& request) {
  const auto credentials =
      request.at("credentials").get<std::vector<std::string>>();
  const remote::NamedValues query =
      request.value("query", remote::NamedValues());
  const std::string path = request.at("path");
  const remote::NamedValues headers =
      remote::Sign({request.at("method"), request.at("host"), path, query,
                    request.value("headers", remote::NamedValues()),
                    request.at("payload")},
                   {request.at("region"), request.at("service")},
                   {credentials.at(0), credentials.at(1), credentials.at(2)},
                   request.at("time").get<std::time_t>())
          .ValueOrThrow();
  return {{"headers", headers},
          {"path", remote::EncodePath(path)},
          {"query", remote::EncodeQuery(query)}};
}

Json Address(const Json& request) {
  remote::S3Settings settings;
  settings.endpoint = request.at("endpoint");
  settings.region = request.at("region");
  for (const auto& [name, style] : kStyles) {
    if (request.at("style") == name) settings.addressing = style;
  }
  return {{"url", remote::AddressOf(settings,
                                    {request.at("bucket"), request.at("key")})
                      .ValueOrThrow()
                      .ToString()}};
}

Json Settings(const Json& request) {
  const auto variables =
      request.at("variables").get<std::map<std::string, std::string>>();
  const remote::S3Settings settings =
      remote::LoadS3Settings([&](const char* name)
                                 -> std::optional<std::string> {
        const auto found = variables.find(name);
        if (found == variables.end()) return std::nullopt;
        return found->second;
      }).ValueOrThrow();
  Json answer = {{"credentials", nullptr},
                 {"region", settings.region},
                 {"endpoint", settings.endpoint}};
  if (const auto& keys = settings.credentials) {
    answer["credentials"] = {keys->access_key, keys->secret_key,
                             keys->session_token};
  }
  for (const auto& [name, style] : kStyles) {
    if (settings.addressing == style) answer["style"] = name;
  }
  return answer;
}

}  // namespace

Json RemoteAnswer(const Json& request) {
  const std::string what = request.at("do");
  try {
    if (what == "sign") return Sign(request);
    if (what == "address") return Address(request);
    if (what == "settings") return Settings(request);
    if (what == "ini") {
      return {{"sections",
               remote::ParseIni(request.at("text").get<std::string>(), "f")
                   .ValueOrThrow()}};
    }
  } catch (const Error& error) {
    return {{"error", error.what()}};
  }
  return nullptr;
}

}  // namespace sluice
