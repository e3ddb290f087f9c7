#include "dist/membership/control.h"

#include <doctest/doctest.h>
#include <sys/socket.h>

#include <array>
#include <chrono>
#include <random>
#include <string>
#include <vector>

namespace sluice::dist {
namespace {

ControlMessage RandomMessage(std::mt19937& random) {
  constexpr FrameKind kKinds[] = {FrameKind::kBeat, FrameKind::kGoodbye,
                                  FrameKind::kError, FrameKind::kSuspect,
                                  FrameKind::kVerdict};
  ControlMessage message;
  message.kind = kKinds[random() % 5];
  message.rank = static_cast<int>(random() % 8);
  message.epoch = static_cast<uint32_t>(random());
  if (message.kind == FrameKind::kGoodbye) return message;
  std::string text(random() % 2048, '\0');
  for (char& c : text) c = static_cast<char>(random());
  if (message.kind == FrameKind::kBeat) {
    message.run = random();
    message.waits_in = text;
    return message;
  }
  message.whom = static_cast<int>(random() % 8);
  message.reason = Status(static_cast<Code>(1 + random() % 12), text);
  return message;
}

void CheckSame(const ControlMessage& a, const ControlMessage& b) {
  CHECK(a.kind == b.kind);
  CHECK(a.rank == b.rank);
  CHECK(a.epoch == b.epoch);
  CHECK(a.whom == b.whom);
  CHECK(a.run == b.run);
  CHECK(a.waits_in == b.waits_in);
  CHECK(a.reason.code() == b.reason.code());
  CHECK(a.reason.message() == b.reason.message());
}

TEST_CASE("messages are whole however their bytes come") {
  std::mt19937 random(1);
  for (int run = 0; run < 50; ++run) {
    std::vector<ControlMessage> sent, got;
    std::string bytes;
    for (int i = 0; i < 20; ++i) {
      sent.push_back(RandomMessage(random));
      bytes += Encoded(sent.back());
    }
    ControlReader reader(8);
    for (size_t at = 0; at < bytes.size();) {
      const size_t n = 1 + random() % (size_t{1} << random() % 13);
      REQUIRE(reader.Add(std::string_view(bytes).substr(at, n), &got).ok());
      at += n;
    }
    REQUIRE(got.size() == sent.size());
    for (size_t i = 0; i < sent.size(); ++i) CheckSame(sent[i], got[i]);
  }
}

TEST_CASE("what is no message is an error") {
  const auto refused = [](const std::string& bytes) {
    std::vector<ControlMessage> got;
    ControlReader reader(4);
    CHECK(reader.Add(bytes, &got).code() == Code::kDataLoss);
    CHECK(got.empty());
  };
  refused(std::string(48, 'x'));
  ControlMessage message;
  message.rank = 4;
  refused(Encoded(message));  // of four
  message.rank = 0;
  message.kind = FrameKind::kReduce;
  refused(Encoded(message));
  message.kind = FrameKind::kSuspect;
  refused(Encoded(message));  // without a reason
  message.reason = DataLoss("x");
  message.whom = 4;
  refused(Encoded(message));
  Frame frame;
  frame.kind = FrameKind::kError;
  frame.count = 1;
  frame.bytes = 2049;
  std::array<std::byte, kFrameBytes> header;
  Encode(frame, header);
  refused({reinterpret_cast<const char*>(header.data()), header.size()});
}

TEST_CASE("a peer that takes nothing does not make memory grow") {
  std::array<int, 2> ends;
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()) == 0);
  ControlChannel channel{Socket(ends[0]), 2}, peer{Socket(ends[1]), 2};
  std::vector<ControlMessage> in;
  ControlMessage failure;
  failure.kind = FrameKind::kError;
  failure.reason = DataLoss(std::string(2000, 'x'));
  for (int i = 0; i < 10'000; ++i) {
    channel.Say(failure);
    channel.Beat({.epoch = 1});
    REQUIRE(channel.Move(&in).ok());
  }
  CHECK_FALSE(channel.flushed());
  // What was kept arrives whole.
  for (int i = 0; i < 10'000 && !channel.flushed(); ++i) {
    REQUIRE(channel.Move(&in).ok());
    REQUIRE(peer.Move(&in).ok());
  }
  CHECK(channel.flushed());
  REQUIRE(peer.Move(&in).ok());
  CHECK(in.size() > 10);
  CHECK(in.size() < 1000);
  for (const ControlMessage& message : in) CheckSame(message, failure);
}

}  // namespace
}  // namespace sluice::dist
