// What tasks tell each other beside tensors: a line of JSON, and bytes behind.
#ifndef SLUICE_DIST_CLUSTER_MESSAGE_H_
#define SLUICE_DIST_CLUSTER_MESSAGE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/machine_memory.h"
#include "engine/runtime/rendezvous.h"
#include "engine/status.h"
#include "engine/tensor.h"
#include "engine/text/json.h"

namespace sluice::dist {

// On the wire: the head's length in 4 bytes, little-endian, the head, the body.
struct Message {
  std::string head;  // a JSON object
  std::vector<std::byte> body;

  std::vector<std::byte> Pack() const;
  // kDataLoss where the bytes are none.
  static Result<Message> Unpack(std::vector<std::byte> bytes);
};
// The head of the call that asks a task whether it is there, which one that is
// about to end is not.
inline constexpr char kHere[] = R"({"call": "here"})";
// The most bytes of a call or an answer with its body: room for a variable.
inline constexpr uint64_t kMaxMessage = uint64_t{1} << 34;
// The most bytes of a head, of which a JSON reader makes many times as much.
inline constexpr size_t kMaxHead = size_t{16} << 20;
// Whether a message of `bytes` can be taken: kInvalidArgument where no message
// is so long, kResourceExhausted where there is no memory for it.
Status CheckMessage(uint64_t bytes, const MachineMemory& memory);

// Incarnations as words in JSON, since its numbers do not reach so far.
std::vector<std::string> WordsOf(const std::vector<uint64_t>& numbers);
Result<std::vector<uint64_t>> NumbersOf(const std::vector<std::string>& words);

// A tensor as a message: {"dtype", "shape"} and its bytes.
Json HeadOf(const Tensor& tensor);
std::vector<std::byte> BytesOf(const Tensor& tensor);
Message MessageOf(const Tensor& tensor);
Result<Tensor> TensorOf(const Message& message);

// A run that is ordered: what does not fit the frame's header (kRun).
//
//   offset  size
//        0     8  session
//        8     8  step    that keys randomness
//       16     8  within  microseconds to the deadline; 0: none
//       24     4  replica
//       28     4  zeros
struct OrderBody {
  uint64_t session = 0;
  uint64_t step = 0;
  uint64_t within = 0;
  uint32_t replica = 0;

  static constexpr size_t kBytes = 32;
  std::vector<std::byte> Pack() const;
  // kDataLoss where the zeros are none.
  static Result<OrderBody> Unpack(std::span<const std::byte, kBytes> bytes);
};

// A deadline as what is left of it, in microseconds, at least 1; 0: none.
uint64_t LeftUntil(Rendezvous::TimePoint deadline);
Rendezvous::TimePoint DeadlineIn(uint64_t microseconds);

}  // namespace sluice::dist

#endif  // SLUICE_DIST_CLUSTER_MESSAGE_H_
