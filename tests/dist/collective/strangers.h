// Those who have no business at a job's port, all kinds of them.
#ifndef SLUICE_TESTS_DIST_COLLECTIVE_STRANGERS_H_
#define SLUICE_TESTS_DIST_COLLECTIVE_STRANGERS_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "dist/collective/hello.h"
#include "dist/net/authority.h"
#include "dist/net/socket.h"
#include "dist/net/tls.h"
#include "tests/support/tls_greeting.h"

namespace sluice::dist::testing {

// Knock at the port from threads of their own, as long as this lives.
class Strangers {
 public:
  // `ours` issues a certificate of the job for a rank that the job has not. The
  // job's size, and its token, which the worst of them know.
  Strangers(int port, const Authority& ours, int size, std::string token,
            int threads)
      : port_(port), size_(size), token_(std::move(token)) {
    const Authority other = Authority::Create(ours.job()).ValueOrThrow();
    const std::chrono::hours hour(1);
    const auto add = [&](const Credentials& credentials) {
      shown_.push_back(Tls::Create(credentials).ValueOrThrow());
    };
    const Credentials leaked = ours.Issue("worker", size, hour).ValueOrThrow();
    Credentials wrong = other.Issue("worker", 1, hour).ValueOrThrow();
    wrong.authority += leaked.authority;  // trusts whom it meets
    add(wrong);
    add(leaked);
    add(ours.Issue("guest", 1, hour).ValueOrThrow());
    add(ours.Issue("worker", 1, std::chrono::seconds(2)).ValueOrThrow());
    // Expired when they are let loose.
    std::this_thread::sleep_for(std::chrono::milliseconds(2100));
    greeting_ = sluice::testing::TlsGreeting(*shown_[0]);
    for (int i = 0; i < threads; ++i) {
      threads_.emplace_back([this, i] { Knock(static_cast<unsigned>(i)); });
    }
  }
  ~Strangers() {
    done_ = true;
    for (std::thread& thread : threads_) thread.join();
  }
  Strangers(const Strangers&) = delete;
  Strangers& operator=(const Strangers&) = delete;

  // Connections so far, and those of them that were taken for one of the job.
  int knocks() const { return knocks_; }
  int let_in() const { return let_in_; }

 private:
  void Knock(unsigned seed) {
    std::mt19937 random(seed);
    while (!done_) {
      auto socket = Socket::Connect("127.0.0.1", port_,
                                    After(std::chrono::milliseconds(200)));
      if (!socket.ok()) continue;  // between two jobs nobody listens
      ++knocks_;
      Misbehave(*socket, random);
    }
  }

  void Misbehave(Socket& socket, std::mt19937& random) {
    const Deadline soon = After(std::chrono::milliseconds(300));
    std::vector<std::byte> bytes = greeting_;
    switch (random() % 8) {
      case 0:  // and gone
        return;
      case 1:  // silence
        Linger(random);
        return;
      case 2:  // half a handshake, and silence
        bytes.resize(random() % bytes.size());
        (void)socket.Send(Bytes(bytes), soon).ok();
        Linger(random);
        return;
      case 3:  // a spoiled one
        bytes[random() % bytes.size()] ^= static_cast<std::byte>(1 + random());
        (void)socket.Send(Bytes(bytes), soon).ok();
        return;
      case 4:  // a slow one
        for (const std::byte& byte : bytes) {
          if (done_ || !socket.Send(Bytes(&byte, 1), soon).ok()) return;
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        return;
      case 5:  // plain bytes
        bytes.assign(random() % 5000, static_cast<std::byte>(random()));
        (void)socket.Send(Bytes(bytes), soon).ok();
        return;
      case 6:  // a hello in the clear, that of a member
        (void)SendHello(Member(), socket, soon).ok();
        return;
      default:  // a handshake, and a member's hello
        Pretend(socket, *shown_[random() % shown_.size()], soon);
    }
  }

  // What a rank that was let in gets to read, a stranger must not.
  void Pretend(Socket& socket, const Tls& tls, Deadline soon) {
    if (!socket.AwaitTls(tls, TlsSide::kConnects, soon).ok()) return;
    if (!SendHello(Member(), socket, soon).ok()) return;
    std::byte byte;
    if (socket.Receive(MutableBytes(&byte, 1), soon).ok()) ++let_in_;
  }

  Hello Member() const {
    Hello hello;
    hello.rank = 1;
    hello.size = size_;
    hello.token = token_;
    hello.version = "0";
    hello.address = "127.0.0.1";
    hello.port = 1;
    return hello;
  }

  void Linger(std::mt19937& random) {
    const Deadline end = After(std::chrono::milliseconds(random() % 2500));
    while (!done_ && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }

  const int port_, size_;
  const std::string token_;
  std::vector<std::shared_ptr<const Tls>> shown_;
  std::vector<std::byte> greeting_;
  std::atomic<bool> done_{false};
  std::atomic<int> knocks_{0}, let_in_{0};
  std::vector<std::thread> threads_;
};

}  // namespace sluice::dist::testing

#endif  // SLUICE_TESTS_DIST_COLLECTIVE_STRANGERS_H_
