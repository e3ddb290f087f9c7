// Which requests go through the proxies of the environment. The names of hosts
// here are none: only a proxy answers for them.
#ifdef SLUICE_HAVE_CURL
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cstdlib>
#include <map>
#include <optional>
#include <string>

#include "io/remote/http/curl_client.h"
#include "tests/support/error_text.h"
#include "tests/support/free_ports.h"
#include "tests/support/http_server.h"

namespace sluice::remote {
namespace {

using testing::Contains;
using testing::HttpServer;
using testing::ServedAnswer;
using testing::ServedRequest;

// The variables that libcurl reads, as they are while it lives: those that are
// not given are unset.
class ProxySettings {
 public:
  explicit ProxySettings(const std::map<std::string, std::string>& settings) {
    for (const char* name :
         {"http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY",
          "no_proxy", "NO_PROXY"}) {
      const char* old = std::getenv(name);
      old_[name] =
          old == nullptr ? std::nullopt : std::optional<std::string>(old);
      const auto found = settings.find(name);
      Set(name, found == settings.end()
                    ? std::nullopt
                    : std::optional<std::string>(found->second));
    }
  }
  ~ProxySettings() {
    for (const auto& [name, value] : old_) Set(name, value);
  }
  ProxySettings(const ProxySettings&) = delete;
  ProxySettings& operator=(const ProxySettings&) = delete;

 private:
  static void Set(const std::string& name,
                  const std::optional<std::string>& value) {
    if (value) {
      setenv(name.c_str(), value->c_str(), 1);
    } else {
      unsetenv(name.c_str());
    }
  }

  std::map<std::string, std::optional<std::string>> old_;
};

// Answers with what it was asked for, but opens no tunnels.
ServedAnswer Proxy(const ServedRequest& request) {
  if (request.method == "CONNECT") return {.status = 403};
  return {.body = "proxy: " + request.target};
}

// The answer's body, or of which code the error is.
std::string Answer(const std::string& url) {
  const auto client =
      MakeCurlClient({.connect_timeout = std::chrono::seconds(5),
                      .stall = std::chrono::seconds(5)})
          .ValueOrThrow();
  const auto response = client->Send({.url = url});
  if (response.ok()) return response->body;
  CHECK(response.status().code() == Code::kUnavailable);
  return response.status().message();
}

TEST_CASE("proxy: requests go through it but where no_proxy says otherwise") {
  HttpServer proxy(Proxy);
  const std::string url = "http://store.invalid/b/k?q=1";
  const std::string through = "proxy: " + url;
  struct Case {
    std::string no_proxy;
    bool passes_by;
  };
  for (const Case& c : {Case{"", false},
                        {"other.invalid", false},
                        {"tore.invalid", false},
                        {"store.invalid.org", false},
                        {"store.invalid", true},
                        {"invalid", true},
                        {".invalid", true},
                        {"a.example,store.invalid", true},
                        {"a.example, store.invalid", true},
                        {"*", true}}) {
    for (const char* name : {"no_proxy", "NO_PROXY"}) {
      CAPTURE(name);
      CAPTURE(c.no_proxy);
      const ProxySettings settings(
          {{"http_proxy", proxy.url()}, {name, c.no_proxy}});
      const int before = proxy.requests();
      const std::string answer = Answer(url);
      CHECK(proxy.requests() == before + (c.passes_by ? 0 : 1));
      if (c.passes_by) {
        CHECK(Contains(answer, "http://store.invalid: "));
      } else {
        CHECK(answer == through);
      }
    }
  }
}

TEST_CASE("proxy: never for this machine itself") {
  HttpServer proxy(Proxy);
  HttpServer server(
      [](const ServedRequest&) { return ServedAnswer{.body = "server"}; });
  const ProxySettings settings({{"http_proxy", proxy.url()},
                                {"https_proxy", proxy.url()},
                                {"all_proxy", proxy.url()}});
  CHECK(Answer(server.url()) == "server");
  CHECK(Answer(fmt::format("http://localhost:{}/k", server.port())) ==
        "server");
  CHECK(proxy.requests() == 0);
  // Others' names may begin like it.
  CHECK(Answer("http://localhost.store.invalid/k") ==
        "proxy: http://localhost.store.invalid/k");
  CHECK(Answer("http://127.store.invalid/k") ==
        "proxy: http://127.store.invalid/k");
}

TEST_CASE("proxy: encrypted requests have one of their own") {
  HttpServer proxy(Proxy);
  const std::string url = "https://store.invalid/b/k?sig=hush";
  {
    const ProxySettings settings({{"https_proxy", proxy.url()}});
    const std::string refused = Answer(url);
    CHECK(proxy.requests() == 1);
    CHECK(Contains(refused, "https://store.invalid: "));
    CHECK(Contains(refused, "403"));
    CHECK(refused.find("hush") == std::string::npos);
  }
  const ProxySettings settings(
      {{"https_proxy", proxy.url()}, {"no_proxy", ".invalid"}});
  CHECK(Contains(Answer(url), "https://store.invalid: "));
  CHECK(proxy.requests() == 1);
}

TEST_CASE("proxy: one that is not there is an error that names it") {
  const std::string gone =
      fmt::format("http://127.0.0.1:{}", testing::FreePorts(1)[0]);
  const ProxySettings settings({{"http_proxy", gone}});
  const std::string error = Answer("http://store.invalid/k");
  CHECK(Contains(error, "http://store.invalid: "));
  CHECK(Contains(error, "127.0.0.1"));
}

}  // namespace
}  // namespace sluice::remote
#endif
