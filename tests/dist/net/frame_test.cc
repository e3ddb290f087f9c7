#include "dist/net/frame.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <limits>
#include <random>
#include <string>

namespace sluice::dist {
namespace {

using Header = std::array<std::byte, kFrameBytes>;

Header Encoded(const Frame& frame) {
  Header header;
  Encode(frame, header);
  return header;
}

std::string Hex(const Header& header) {
  std::string text;
  for (const std::byte b : header) {
    text += "0123456789abcdef"[std::to_integer<int>(b) >> 4];
    text += "0123456789abcdef"[std::to_integer<int>(b) & 15];
  }
  return text;
}

// What the grammar allows, with large and small numbers alike.
Frame RandomFrame(std::mt19937_64& random) {
  const auto number = [&](int bits) {
    return bits == 0 ? 0 : random() >> (64 - bits);
  };
  Frame frame;
  frame.kind = static_cast<FrameKind>(1 + random() % kNumFrameKinds);
  frame.rank = static_cast<int>(number(static_cast<int>(random() % 32)));
  frame.epoch = static_cast<uint32_t>(random());
  frame.run = number(static_cast<int>(random() % 65));
  frame.key = random();
  if (random() % 2 == 0) {
    frame.dtype = static_cast<DType>(random() % kNumDTypes);
    frame.count = number(static_cast<int>(random() % 38));
    frame.bytes = frame.count * SizeOf(*frame.dtype);
  } else {
    frame.count = number(static_cast<int>(random() % 65));
    frame.bytes = number(static_cast<int>(random() % 41));
  }
  return frame;
}

// The error of a header with one byte replaced.
std::string ErrorWith(size_t at, int value, const Frame& frame) {
  Header header = Encoded(frame);
  header[at] = static_cast<std::byte>(value);
  const auto result = Decode(header);
  REQUIRE_FALSE(result.ok());
  CHECK(result.status().code() == Code::kDataLoss);
  return result.status().message();
}

TEST_CASE("the bytes of a frame are those of the grammar") {
  Frame frame = FrameOf(FrameKind::kReduce, DType::kFloat64, 0x0102);
  frame.rank = 0x03040506;
  frame.epoch = 0x0708090a;
  frame.run = 0x1112131415161718;
  frame.key = 0x2122232425262728;
  CHECK(frame.bytes == 0x0810);
  CHECK(Hex(Encoded(frame)) ==
        "534c5549"
        "0100"
        "03"
        "02"
        "06050403"
        "0a090807"
        "1817161514131211"
        "2827262524232221"
        "0201000000000000"
        "1008000000000000");
}

TEST_CASE("keys are the published values of FNV-1a") {
  CHECK(Key("") == 0xcbf29ce484222325);
  CHECK(Key("a") == 0xaf63dc4c8601ec8c);
  CHECK(Key("foobar") == 0x85944171f73967e8);
  CHECK(Key("\xff") != Key("\x7f"));
  CHECK(Key(std::string_view("\0", 1)) != Key(""));
}

TEST_CASE("random frames survive") {
  std::mt19937_64 random(1);
  for (int i = 0; i < 10'000; ++i) {
    const Frame frame = RandomFrame(random);
    const auto decoded = Decode(Encoded(frame));
    REQUIRE(decoded.ok());
    REQUIRE(*decoded == frame);
  }
}

TEST_CASE("a flipped bit is an error or another frame") {
  std::mt19937_64 random(2);
  int errors = 0;
  int others = 0;
  for (int i = 0; i < 200; ++i) {
    const Frame frame = RandomFrame(random);
    for (size_t bit = 0; bit < 8 * kFrameBytes; ++bit) {
      Header header = Encoded(frame);
      header[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
      const auto decoded = Decode(header);
      if (bit < 48) REQUIRE_FALSE(decoded.ok());  // magic and version
      ++(decoded.ok() ? others : errors);
      if (!decoded.ok()) continue;
      REQUIRE_FALSE(*decoded == frame);
      REQUIRE(Encoded(*decoded) == header);
    }
  }
  CHECK(errors > 0);
  CHECK(others > 0);
}

TEST_CASE("random headers are read or refused") {
  std::mt19937_64 random(3);
  int read = 0;
  for (int i = 0; i < 100'000; ++i) {
    Header header = Encoded(RandomFrame(random));
    // Of all fields, of those behind the version, or of a few bytes.
    const size_t from = i % 2 == 0 ? 0 : 6;
    const size_t changes = i % 3 == 0 ? 2 : kFrameBytes - from;
    for (size_t n = 0; n < changes; ++n) {
      const size_t at =
          i % 3 == 0 ? from + random() % (kFrameBytes - from) : from + n;
      header[at] = static_cast<std::byte>(random());
    }
    const auto decoded = Decode(header);
    if (!decoded.ok()) {
      REQUIRE(decoded.status().code() == Code::kDataLoss);
      REQUIRE_FALSE(decoded.status().message().empty());
      continue;
    }
    ++read;
    REQUIRE(Encoded(*decoded) == header);
    REQUIRE(decoded->bytes <= kMaxPayload);
  }
  CHECK(read > 0);
}

TEST_CASE("errors say what is wrong") {
  const Frame frame = FrameOf(FrameKind::kReduce, DType::kFloat32, 3);
  CHECK(ErrorWith(0, 'G', frame) ==
        "no frame of sluice: it begins with 474c5549, not 534c5549");
  CHECK(ErrorWith(4, 2, frame).find("version 2, not 1") != std::string::npos);
  CHECK(ErrorWith(6, 0, frame) == "a frame of the unknown kind 0");
  CHECK(ErrorWith(6, kNumFrameKinds + 1, frame) ==
        "a frame of the unknown kind " + std::to_string(kNumFrameKinds + 1));
  CHECK(ErrorWith(7, 10, frame) == "a frame of the unknown dtype 10");
  CHECK(ErrorWith(11, 0x80, frame) ==
        "a frame of the impossible rank 2147483648");
  CHECK(ErrorWith(40, 13, frame) == "a frame of 13 bytes for float32[3]");
  // Whose bytes are 4 * count modulo 2^64.
  CHECK(ErrorWith(39, 0x40, frame) ==
        "a frame of 12 bytes for float32[4611686018427387907]");
  CHECK(ErrorWith(46, 1, frame) ==
        "a frame of 281474976710668 bytes, of which 1099511627776 are "
        "allowed");
}

TEST_CASE("the largest payload is allowed, one byte more is not") {
  Frame frame = FrameOf(FrameKind::kGather, DType::kInt8, kMaxPayload);
  CHECK(*Decode(Encoded(frame)) == frame);
  frame.dtype.reset();
  CHECK(*Decode(Encoded(frame)) == frame);
  Header header = Encoded(frame);
  header[40] = std::byte{1};
  CHECK_FALSE(Decode(header).ok());
}

TEST_CASE("every kind has a name of its own") {
  std::array<std::string_view, kNumFrameKinds> names;
  for (int i = 0; i < kNumFrameKinds; ++i) {
    names[static_cast<size_t>(i)] = NameOf(static_cast<FrameKind>(i + 1));
  }
  std::sort(names.begin(), names.end());
  CHECK(std::unique(names.begin(), names.end()) == names.end());
  CHECK(NameOf(FrameKind::kHello) == "hello");
  CHECK(NameOf(FrameKind::kError) == "error");
  CHECK(NameOf(static_cast<FrameKind>(0)) == "unknown");
  CHECK(NameOf(static_cast<FrameKind>(kNumFrameKinds + 1)) == "unknown");
}

TEST_CASE("frames of two sides are the same but for who sends them") {
  Frame mine = FrameOf(FrameKind::kReduce, DType::kFloat32, 200);
  mine.run = 7;
  mine.key = 0xabc;
  mine.epoch = 2;
  Frame other = mine;
  other.rank = 1;
  CHECK(CheckSame(mine, other, "rank 1").ok());

  Frame texts = mine;
  texts.dtype.reset();
  Frame longer = texts;
  longer.bytes = 9;
  CHECK(CheckSame(texts, longer, "rank 1").ok());

  other.count = 100;
  const Status status = CheckSame(mine, other, "rank 1");
  CHECK(status.code() == Code::kFailedPrecondition);
  CHECK(status.message() ==
        "rank 1 sends reduce 7 of float32[100] (key 0000000000000abc, epoch "
        "2), rank 0 wants reduce 7 of float32[200] (key 0000000000000abc, "
        "epoch 2): another size");
}

TEST_CASE("everything that differs is named") {
  const Frame mine = FrameOf(FrameKind::kReduce, DType::kFloat32, 4);
  const auto difference = [&](auto change) {
    Frame other = mine;
    change(&other);
    const std::string text = CheckSame(mine, other, "rank 1").message();
    return text.substr(text.rfind("): ") + 3);
  };
  CHECK(difference([](Frame* f) { f->epoch = 1; }) == "another epoch");
  CHECK(difference([](Frame* f) { f->kind = FrameKind::kGather; }) ==
        "another kind");
  CHECK(difference([](Frame* f) { f->run = 1; }) == "another order");
  CHECK(difference([](Frame* f) { f->key = 1; }) == "another name");
  CHECK(difference([](Frame* f) { f->dtype = DType::kInt32; }) ==
        "another dtype");
  CHECK(difference([](Frame* f) { f->dtype.reset(); }) == "another dtype");
  CHECK(difference([](Frame* f) {
          f->run = 1;
          f->count = 1;
        }) == "another order, size");
}

}  // namespace
}  // namespace sluice::dist
