// What tasks tell each other survives the way; anything else is an error.
#include "dist/cluster/message.h"

#include <doctest/doctest.h>

#include <chrono>
#include <string>
#include <vector>

namespace sluice::dist {
namespace {

TEST_CASE("messages and tensors of all kinds survive the way") {
  for (const Shape& shape : {Shape{}, Shape{3}, Shape{2, 0, 5}, Shape{4, 2}}) {
    for (const DType dtype :
         {DType::kFloat32, DType::kInt64, DType::kBool, DType::kBFloat16}) {
      Tensor tensor(dtype, shape);
      auto* const bytes = static_cast<std::byte*>(tensor.raw());
      for (size_t i = 0; i < tensor.bytes(); ++i) {
        bytes[i] = static_cast<std::byte>(dtype == DType::kBool ? i % 2 : i);
      }
      const auto message = Message::Unpack(MessageOf(tensor).Pack());
      REQUIRE(message.ok());
      const auto got = TensorOf(*message);
      REQUIRE(got.ok());
      CHECK(got->dtype() == dtype);
      CHECK(got->shape() == shape);
      CHECK(got->BitEqual(tensor));
    }
  }
  const OrderBody order = {1, ~uint64_t{0}, 3, ~uint32_t{0}};
  std::vector<std::byte> bytes = order.Pack();
  const auto again =
      OrderBody::Unpack(std::span(bytes).first<OrderBody::kBytes>());
  REQUIRE(again.ok());
  CHECK(again->session == order.session);
  CHECK(again->step == order.step);
  CHECK(again->within == order.within);
  CHECK(again->replica == order.replica);
  bytes.back() = std::byte{1};
  CHECK_FALSE(
      OrderBody::Unpack(std::span(bytes).first<OrderBody::kBytes>()).ok());
}

TEST_CASE("a shape that is not its bytes' is an error, whatever its size") {
  for (const char* shape :
       {"[3]", "[1]", "[-2]", "[-1,-2]", "[2,0]", "[4294967296,4294967296]",
        "[9223372036854775807,2]", "[0,-1]", "[1,1,1,1,1,1,1,1,1,1,1,2]", "2",
        "null", "[2.5]"}) {
    CAPTURE(shape);
    const Message message = {
        std::string(R"({"dtype": "float32", "shape": )") + shape + "}",
        std::vector<std::byte>(8)};
    CHECK_FALSE(TensorOf(message).ok());
  }
  CHECK_FALSE(TensorOf({R"({"dtype": "float33", "shape": []})", {}}).ok());
  CHECK_FALSE(TensorOf({"", {}}).ok());
  CHECK_FALSE(Message::Unpack({}).ok());
  CHECK_FALSE(Message::Unpack({std::byte{1}, {}, {}, {}}).ok());
}

TEST_CASE("deadlines travel as what is left of them") {
  using Clock = std::chrono::steady_clock;
  CHECK(LeftUntil(Clock::time_point::max()) == 0);
  CHECK(DeadlineIn(0) == Clock::time_point::max());
  CHECK(LeftUntil(Clock::now() - std::chrono::hours(1)) == 1);
  const auto now = Clock::now();
  const auto there = DeadlineIn(LeftUntil(now + std::chrono::seconds(5)));
  CHECK(there - now > std::chrono::milliseconds(4900));
  CHECK(there - now < std::chrono::milliseconds(5900));
  CHECK(DeadlineIn(~uint64_t{0}) > now);
}

TEST_CASE("messages and their heads have a most") {
  const MachineMemory machine;
  CHECK(CheckMessage(kMaxMessage, machine).ok());
  const Status more = CheckMessage(kMaxMessage + 1, machine);
  CHECK(more.code() == Code::kInvalidArgument);
  CHECK(more.message() ==
        "a message of 17179869185 bytes, of at most 17179869184");
  MachineMemory small;
  small.available = 1000;
  CHECK(CheckMessage(1000, small).ok());
  CHECK(CheckMessage(1001, small).code() == Code::kResourceExhausted);
  Message message;
  message.head.resize(kMaxHead);
  CHECK(Message::Unpack(message.Pack()).ok());
  message.head += ' ';
  const Status long_head = Message::Unpack(message.Pack()).status();
  CHECK(long_head.code() == Code::kDataLoss);
  CHECK(long_head.message() ==
        "a message's head of 16777217 bytes, of at most 16777216");
}

TEST_CASE("incarnations are read exactly or refused") {
  const std::vector<uint64_t> numbers = {0, 7, ~uint64_t{0}};
  CHECK(NumbersOf(WordsOf(numbers)).ValueOrThrow() == numbers);
  for (const char* bad :
       {"", "-1", "1 ", " 1", "0x1", "18446744073709551616"}) {
    CAPTURE(bad);
    CHECK(NumbersOf({"1", bad}).status().code() == Code::kInvalidArgument);
  }
}

}  // namespace
}  // namespace sluice::dist
