#include "io/remote/http/curl_client.h"

#ifdef SLUICE_HAVE_CURL
#include <curl/curl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <new>
#include <utility>
#include <vector>

#include "engine/thread_annotations.h"
#include "io/remote/http/ascii.h"
#include "io/remote/http/no_closed_pipe.h"

#ifdef SLUICE_HAVE_CRYPTO
#include <openssl/crypto.h>
#endif
#endif

namespace sluice::remote {

#ifdef SLUICE_HAVE_CURL

namespace {

// Once, before any handle is made.
Status Start() {
  static const CURLcode started = [] {
#ifdef SLUICE_HAVE_CRYPTO
    // Threads may still be reading when the process exits: OpenSSL must not
    // free what they use.
    OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, nullptr);
#endif
    return curl_global_init(CURL_GLOBAL_DEFAULT);
  }();
  if (started == CURLE_OK) return {};
  return Unavailable(fmt::format("libcurl: {}", curl_easy_strerror(started)));
}

// What the callbacks of one transfer write to.
struct Transfer {
  CURL* handle = nullptr;
  const HttpRequest& request;
  HttpResponse response;
  std::exception_ptr thrown = nullptr;  // which must not pass through libcurl

  int StatusCode() const {
    long status = 0;
    curl_easy_getinfo(handle, CURLINFO_RESPONSE_CODE, &status);
    return static_cast<int>(status);
  }
  // Of the body, within what it is worth to take memory for at once.
  size_t PromisedBytes() const {
    constexpr curl_off_t kMost = 16 << 20;
    curl_off_t length = 0;
    curl_easy_getinfo(handle, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
    return static_cast<size_t>(std::clamp<curl_off_t>(length, 0, kMost));
  }
};

void TakeHeader(std::string_view line, HttpResponse* response) {
  if (line.starts_with("HTTP/")) {  // of this answer; others led here
    response->headers.clear();
    return;
  }
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos) return;
  response->headers.emplace_back(LowerCase(Stripped(line.substr(0, colon))),
                                 Stripped(line.substr(colon + 1)));
}

size_t OnHeader(char* bytes, size_t size, size_t n, void* into) {
  auto* transfer = static_cast<Transfer*>(into);
  try {
    TakeHeader({bytes, size * n}, &transfer->response);
  } catch (...) {
    transfer->thrown = std::current_exception();
    return 0;
  }
  return size * n;
}

size_t OnBody(char* bytes, size_t size, size_t n, void* into) {
  auto* transfer = static_cast<Transfer*>(into);
  const HttpRequest& request = transfer->request;
  HttpResponse& response = transfer->response;
  response.status = transfer->StatusCode();
  const size_t limit = response.ok() ? request.body_limit : kRefusalBytes;
  const size_t taken = std::min(size * n, limit - response.body_bytes());
  response.cut = taken < size * n;
  if (response.ok() && request.into != nullptr) {
    std::memcpy(request.into + response.placed, bytes, taken);
    response.placed += taken;
    return taken;
  }
  try {
    if (response.body.empty()) {
      response.body.reserve(std::min(limit, transfer->PromisedBytes()));
    }
    response.body.append(bytes, taken);
  } catch (...) {
    transfer->thrown = std::current_exception();
    return 0;
  }
  return taken;  // fewer end the transfer
}

bool IsThisMachine(std::string_view scheme_and_host) {
  std::string_view host =
      scheme_and_host.substr(scheme_and_host.find("://") + 3);
  if (host.starts_with("[::1]")) return true;
  host = host.substr(0, host.find(':'));
  // Others' names may begin as addresses do.
  return host == "localhost" ||
         (host.starts_with("127.") &&
          host.find_first_not_of("0123456789.") == std::string_view::npos);
}

// Which of libcurl's errors are the network's, so that another try may help.
Status ErrorOf(CURLcode code, const char* detail, const std::string& url) {
  const std::string message =
      fmt::format("{}: {}", SchemeAndHost(url),
                  *detail != '\0' ? detail : curl_easy_strerror(code));
  switch (code) {
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
      return FailedPrecondition(
          message + "; AWS_CA_BUNDLE names a file of certificates to trust");
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_ISSUER_ERROR:
      return FailedPrecondition(message);
    case CURLE_URL_MALFORMAT:
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_TOO_MANY_REDIRECTS:
      return InvalidArgument(message);
    case CURLE_OUT_OF_MEMORY:
      return ResourceExhausted(message);
    default:
      return Unavailable(message);
  }
}

class HeaderList {
 public:
  ~HeaderList() { curl_slist_free_all(list_); }
  HeaderList() = default;
  HeaderList(const HeaderList&) = delete;
  HeaderList& operator=(const HeaderList&) = delete;
  void Add(const std::string& line) {
    curl_slist* longer = curl_slist_append(list_, line.c_str());
    if (longer == nullptr) throw std::bad_alloc();
    list_ = longer;
  }
  curl_slist* get() const { return list_; }

 private:
  curl_slist* list_ = nullptr;
};

class CurlClient : public HttpClient {
 public:
  explicit CurlClient(CurlOptions options) : options_(std::move(options)) {}
  ~CurlClient() override {
    const NoClosedPipe quiet;
    for (CURL* handle : idle_) curl_easy_cleanup(handle);
  }
  CurlClient(const CurlClient&) = delete;
  CurlClient& operator=(const CurlClient&) = delete;

  Result<HttpResponse> Send(const HttpRequest& request) override {
    const NoClosedPipe quiet;
    CURL* handle = Take();
    if (handle == nullptr) return ResourceExhausted("libcurl: out of memory");
    Transfer transfer{.handle = handle, .request = request, .response = {}};
    Status status;
    try {
      status = Perform(&transfer);
    } catch (const std::bad_alloc&) {
      status = ResourceExhausted("out of memory for a request");
    }
    Return(handle);
    SLUICE_RETURN_IF_ERROR(status);
    return std::move(transfer.response);
  }

 private:
  static constexpr size_t kMostIdle = 64;

  Status Perform(Transfer* transfer) {
    const HttpRequest& request = transfer->request;
    CURL* handle = transfer->handle;
    const auto set = [&](CURLoption option, auto value) {
      curl_easy_setopt(handle, option, value);
    };
    char detail[CURL_ERROR_SIZE] = "";
    curl_easy_reset(handle);  // connections stay
    set(CURLOPT_ERRORBUFFER, detail);
    set(CURLOPT_URL, request.url.c_str());
    set(CURLOPT_PATH_AS_IS, 1L);  // ".." may be a part of a key
    set(CURLOPT_PROTOCOLS_STR, "http,https");
    set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
    if (request.follow_redirects) {
      set(CURLOPT_FOLLOWLOCATION, 1L);
      set(CURLOPT_MAXREDIRS, 5L);
      const bool secure = request.url.starts_with("https:");
      set(CURLOPT_REDIR_PROTOCOLS_STR, secure ? "https" : "http,https");
    }
    set(CURLOPT_NOSIGNAL, 1L);
    set(CURLOPT_TCP_KEEPALIVE, 1L);
    set(CURLOPT_BUFFERSIZE, 256L << 10);
    set(CURLOPT_CONNECTTIMEOUT_MS,
        static_cast<long>(options_.connect_timeout.count()));
    set(CURLOPT_TIMEOUT_MS,
        std::max(1L, static_cast<long>(request.timeout.count())));
    set(CURLOPT_LOW_SPEED_LIMIT, 1L);
    set(CURLOPT_LOW_SPEED_TIME, static_cast<long>(options_.stall.count()));
    if (!options_.ca_file.empty()) {
      set(CURLOPT_CAINFO, options_.ca_file.c_str());
    }
    if (IsThisMachine(SchemeAndHost(request.url))) set(CURLOPT_PROXY, "");
    set(CURLOPT_HEADERFUNCTION, OnHeader);
    set(CURLOPT_HEADERDATA, transfer);
    set(CURLOPT_WRITEFUNCTION, OnBody);
    set(CURLOPT_WRITEDATA, transfer);

    HeaderList headers;
    AddHeaders(request, &headers);
    set(CURLOPT_HTTPHEADER, headers.get());
    SetMethod(handle, request);
    CURLcode code = curl_easy_perform(handle);
    set(CURLOPT_ERRORBUFFER, static_cast<char*>(nullptr));
    if (transfer->thrown != nullptr) std::rethrow_exception(transfer->thrown);
    if (code == CURLE_WRITE_ERROR && transfer->response.cut) code = CURLE_OK;
    if (code != CURLE_OK) return ErrorOf(code, detail, request.url);
    transfer->response.status = transfer->StatusCode();
    return {};
  }

  static void AddHeaders(const HttpRequest& request, HeaderList* headers) {
    headers->Add("User-Agent: sluice");
    // What libcurl would add by itself.
    headers->Add("Expect:");
    headers->Add("Accept:");
    const auto named = [&](std::string_view wanted) {
      return std::any_of(
          request.headers.begin(), request.headers.end(),
          [&](const auto& header) { return header.first == wanted; });
    };
    if (!named("content-type")) headers->Add("Content-Type:");
    for (const auto& [name, value] : request.headers) {
      // A semicolon is libcurl's way to say "empty", which a colon removes.
      headers->Add(value.empty() ? fmt::format("{};", name)
                                 : fmt::format("{}: {}", name, value));
    }
  }

  static void SetMethod(CURL* handle, const HttpRequest& request) {
    const std::string& method = request.method;
    if (method == "HEAD") {
      curl_easy_setopt(handle, CURLOPT_NOBODY, 1L);
    } else if (method == "PUT" || method == "POST") {
      curl_easy_setopt(handle, CURLOPT_POSTFIELDSIZE_LARGE,
                       static_cast<curl_off_t>(request.body.size()));
      curl_easy_setopt(handle, CURLOPT_POSTFIELDS,
                       request.body.empty() ? "" : request.body.data());
      curl_easy_setopt(handle, CURLOPT_CUSTOMREQUEST, method.c_str());
    } else if (method != "GET") {
      curl_easy_setopt(handle, CURLOPT_CUSTOMREQUEST, method.c_str());
    }
  }

  CURL* Take() {
    MutexLock lock(mutex_);
    if (idle_.empty()) return curl_easy_init();
    // The last one: its connections are most likely still open.
    CURL* handle = idle_.back();
    idle_.pop_back();
    return handle;
  }

  void Return(CURL* handle) {
    {
      MutexLock lock(mutex_);
      if (idle_.size() < kMostIdle) {
        idle_.push_back(handle);
        return;
      }
    }
    curl_easy_cleanup(handle);
  }

  const CurlOptions options_;
  Mutex mutex_;
  std::vector<CURL*> idle_ GUARDED_BY(mutex_);
};

}  // namespace

Result<std::unique_ptr<HttpClient>> MakeCurlClient(const CurlOptions& options) {
  SLUICE_RETURN_IF_ERROR(Start());
  return std::unique_ptr<HttpClient>(std::make_unique<CurlClient>(options));
}

#else

Result<std::unique_ptr<HttpClient>> MakeCurlClient(const CurlOptions&) {
  return Unimplemented("this build has no libcurl");
}

#endif

}  // namespace sluice::remote
