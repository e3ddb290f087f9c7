#include "dist/cluster/message.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <span>
#include <utility>

#include "dist/net/little_endian.h"
#include "engine/allocate.h"
#include "engine/parse_number.h"
#include "engine/text/json.h"
#include "engine/text/json_object.h"

namespace sluice::dist {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;

// A year: more would not fit a time point.
constexpr uint64_t kLongest = uint64_t{365} * 24 * 3600 * 1'000'000;

}  // namespace

Status CheckMessage(uint64_t bytes, const MachineMemory& memory) {
  if (bytes > kMaxMessage) {
    return InvalidArgument(fmt::format("a message of {} bytes, of at most {}",
                                       bytes, kMaxMessage));
  }
  if (bytes <= memory.available) return {};
  return ResourceExhausted(fmt::format(
      "a message of {} bytes, for which {} are left", bytes, memory.available));
}

std::vector<std::byte> Message::Pack() const {
  std::vector<std::byte> bytes(4 + head.size() + body.size());
  std::byte* at = bytes.data();
  Put(static_cast<uint32_t>(head.size()), &at);
  std::memcpy(at, head.data(), head.size());
  std::copy(body.begin(), body.end(), at + head.size());
  return bytes;
}

Result<Message> Message::Unpack(std::vector<std::byte> bytes) {
  if (bytes.size() < 4) return DataLoss("a message without a head");
  const std::byte* at = bytes.data();
  const size_t head = Take<uint32_t>(&at);
  if (head > bytes.size() - 4) {
    return DataLoss("a message's head is longer than it");
  }
  if (head > kMaxHead) {
    return DataLoss(fmt::format("a message's head of {} bytes, of at most {}",
                                head, kMaxHead));
  }
  Message message;
  message.head.assign(reinterpret_cast<const char*>(at), head);
  bytes.erase(bytes.begin(),
              bytes.begin() + static_cast<std::ptrdiff_t>(4 + head));
  message.body = std::move(bytes);
  return message;
}

std::vector<std::string> WordsOf(const std::vector<uint64_t>& numbers) {
  std::vector<std::string> words;
  for (const uint64_t number : numbers) words.push_back(std::to_string(number));
  return words;
}

Result<std::vector<uint64_t>> NumbersOf(const std::vector<std::string>& words) {
  std::vector<uint64_t> numbers;
  for (const std::string& word : words) {
    const auto number = ParseWhole<uint64_t>(word);
    if (!number) {
      return InvalidArgument(fmt::format("'{}' is no incarnation", word));
    }
    numbers.push_back(*number);
  }
  return numbers;
}

Json HeadOf(const Tensor& tensor) {
  Json head = {{"dtype", NameOf(tensor.dtype())}, {"shape", Json::Array()}};
  for (const int64_t dim : tensor.shape()) head["shape"].Add(dim);
  return head;
}

std::vector<std::byte> BytesOf(const Tensor& tensor) {
  const auto* bytes = static_cast<const std::byte*>(tensor.raw());
  return {bytes, bytes + tensor.bytes()};
}

Message MessageOf(const Tensor& tensor) {
  return {HeadOf(tensor).Text(), BytesOf(tensor)};
}

Result<Tensor> TensorOf(const Message& message) {
  SLUICE_ASSIGN_OR_RETURN(const JsonObject head,
                          JsonObject::Parse(message.head));
  SLUICE_ASSIGN_OR_RETURN(const std::string name, head.String("dtype"));
  SLUICE_ASSIGN_OR_RETURN(const DType dtype, ParseDType(name));
  SLUICE_ASSIGN_OR_RETURN(const std::vector<int64_t> dims, head.Ints("shape"));
  // Memory is asked for as much as has come, and no more.
  const uint64_t most = message.body.size() / SizeOf(dtype);
  const bool none = std::find(dims.begin(), dims.end(), 0) != dims.end();
  bool fits = dims.size() <= Shape::kMaxRank;
  uint64_t elements = none ? 0 : 1;
  for (const int64_t dim : dims) {
    fits = fits && dim >= 0;
    if (!fits || none) continue;
    fits = elements <= most / static_cast<uint64_t>(dim);
    elements *= static_cast<uint64_t>(dim);
  }
  if (!fits || elements * SizeOf(dtype) != message.body.size()) {
    return DataLoss("a tensor's shape is not that of its bytes");
  }
  SLUICE_ASSIGN_OR_RETURN(Tensor tensor, AllocateTensor(dtype, Shape(dims)));
  if (!message.body.empty()) {
    std::memcpy(tensor.raw(), message.body.data(), message.body.size());
  }
  return tensor;
}

std::vector<std::byte> OrderBody::Pack() const {
  std::vector<std::byte> bytes(kBytes);
  std::byte* at = bytes.data();
  Put(session, &at);
  Put(step, &at);
  Put(within, &at);
  Put(replica, &at);
  return bytes;
}

Result<OrderBody> OrderBody::Unpack(std::span<const std::byte, kBytes> bytes) {
  const std::byte* at = bytes.data();
  OrderBody order;
  order.session = Take<uint64_t>(&at);
  order.step = Take<uint64_t>(&at);
  order.within = Take<uint64_t>(&at);
  order.replica = Take<uint32_t>(&at);
  if (Take<uint32_t>(&at) != 0) return DataLoss("an order that makes no sense");
  return order;
}

uint64_t LeftUntil(Rendezvous::TimePoint deadline) {
  if (deadline == Rendezvous::TimePoint::max()) return 0;
  const auto left =
      std::chrono::duration_cast<microseconds>(deadline - Clock::now());
  return static_cast<uint64_t>(std::max<int64_t>(left.count(), 1));
}

Rendezvous::TimePoint DeadlineIn(uint64_t left) {
  if (left == 0) return Rendezvous::TimePoint::max();
  return Clock::now() +
         microseconds(static_cast<int64_t>(std::min(left, kLongest)));
}

}  // namespace sluice::dist
