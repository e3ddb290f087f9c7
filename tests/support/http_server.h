// A web server in this process, which fails on command: what io/remote is
// tested against.
#ifndef SLUICE_TESTS_SUPPORT_HTTP_SERVER_H_
#define SLUICE_TESTS_SUPPORT_HTTP_SERVER_H_

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace sluice::testing {

struct ServedRequest {
  std::string method, target;  // as they were sent: "GET", "/a%20b?c=d"
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;

  std::string Header(const std::string& name) const {
    const auto found = headers.find(name);
    return found == headers.end() ? "" : found->second;
  }
};

struct ServedAnswer {
  int status = 200;
  std::map<std::string, std::string> headers;
  std::string body;
  // Faults: the connection ends behind so many bytes of the body, or before the
  // status line; or nothing more is sent until the client has gone.
  std::optional<size_t> cut_after;
  bool no_answer = false;
  bool stall = false;  // behind cut_after
  // Not the body's own length; none: no Content-Length, and the connection ends
  // with the body.
  std::optional<size_t> length_said;
  bool no_length = false;
};

// Listens on 127.0.0.1; a thread for each connection. `answer` is called by
// several at once.
class HttpServer {
 public:
  using Answer = std::function<ServedAnswer(const ServedRequest&)>;

  explicit HttpServer(Answer answer) : answer_(std::move(answer)) {
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    REQUIRE(listener_ >= 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    auto* plain = reinterpret_cast<sockaddr*>(&address);
    socklen_t size = sizeof(address);
    REQUIRE(bind(listener_, plain, size) == 0);
    REQUIRE(getsockname(listener_, plain, &size) == 0);
    REQUIRE(listen(listener_, 64) == 0);
    port_ = ntohs(address.sin_port);
    acceptor_ = std::thread([this] { Accept(); });
  }
  ~HttpServer() {
    stop_ = true;
    shutdown(listener_, SHUT_RDWR);
    acceptor_.join();
    close(listener_);
    {
      const std::lock_guard lock(mutex_);
      for (const int connection : open_) shutdown(connection, SHUT_RDWR);
    }
    for (std::thread& thread : threads_) thread.join();
  }
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const { return port_; }
  std::string url() const { return fmt::format("http://127.0.0.1:{}", port_); }
  int requests() const { return requests_; }
  int connections() const { return connections_; }

 private:
  void Accept() {
    while (!stop_) {
      const int connection = accept(listener_, nullptr, nullptr);
      if (connection < 0) continue;
      ++connections_;
      const int on = 1;
      setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
      const std::lock_guard lock(mutex_);
      open_.push_back(connection);
      threads_.emplace_back([this, connection] {
        std::string buffer;
        while (!stop_ && Serve(connection, &buffer)) {
        }
        const std::lock_guard end(mutex_);
        std::erase(open_, connection);
        close(connection);
      });
    }
  }

  static bool Receive(int connection, std::string* buffer) {
    char bytes[65536];
    const ssize_t n = recv(connection, bytes, sizeof(bytes), 0);
    if (n > 0) buffer->append(bytes, static_cast<size_t>(n));
    return n > 0;
  }
  static bool Send(int connection, std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n =
          send(connection, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(n));
    }
    return true;
  }

  // One request; false where the connection is to end.
  bool Serve(int connection, std::string* buffer) {
    size_t head = 0;
    while ((head = buffer->find("\r\n\r\n")) == std::string::npos) {
      if (!Receive(connection, buffer)) return false;
    }
    ServedRequest request = ParseHead(buffer->substr(0, head));
    buffer->erase(0, head + 4);
    const std::string length = request.Header("content-length");
    const size_t body = length.empty() ? 0 : std::stoul(length);
    while (buffer->size() < body) {
      if (!Receive(connection, buffer)) return false;
    }
    request.body = buffer->substr(0, body);
    buffer->erase(0, body);
    ++requests_;
    return Reply(connection, request, answer_(request));
  }

  static ServedRequest ParseHead(const std::string& text) {
    ServedRequest request;
    size_t end = text.find("\r\n");
    const std::string line = text.substr(0, end);
    const size_t space = line.find(' ');
    request.method = line.substr(0, space);
    request.target = line.substr(space + 1, line.rfind(' ') - space - 1);
    while (end != std::string::npos) {
      const size_t begin = end + 2;
      end = text.find("\r\n", begin);
      const std::string header = text.substr(begin, end - begin);
      const size_t colon = header.find(':');
      std::string name = header.substr(0, colon);
      std::transform(name.begin(), name.end(), name.begin(),
                     [](unsigned char c) { return std::tolower(c); });
      const size_t value = header.find_first_not_of(' ', colon + 1);
      request.headers[name] =
          value == std::string::npos ? "" : header.substr(value);
    }
    return request;
  }

  bool Reply(int connection, const ServedRequest& request,
             const ServedAnswer& answer) {
    if (answer.no_answer) return false;
    std::string head = fmt::format("HTTP/1.1 {} x\r\n", answer.status);
    for (const auto& [name, value] : answer.headers) {
      head += fmt::format("{}: {}\r\n", name, value);
    }
    if (!answer.no_length) {
      head += fmt::format("Content-Length: {}\r\n",
                          answer.length_said.value_or(answer.body.size()));
    }
    head += "\r\n";
    if (!Send(connection, head)) return false;
    if (request.method == "HEAD") return true;
    std::string_view body = answer.body;
    if (answer.cut_after) body = body.substr(0, *answer.cut_after);
    if (!Send(connection, body)) return false;
    std::string rest;
    while (answer.stall && Receive(connection, &rest)) {
    }
    return !answer.cut_after && !answer.length_said && !answer.no_length;
  }

  const Answer answer_;
  int listener_ = -1;
  int port_ = 0;
  std::atomic<bool> stop_ = false;
  std::atomic<int> requests_ = 0, connections_ = 0;
  std::thread acceptor_;
  std::mutex mutex_;
  std::vector<int> open_;
  std::vector<std::thread> threads_;
};

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_SUPPORT_HTTP_SERVER_H_
