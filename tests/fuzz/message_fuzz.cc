// Any bytes make a message between tasks, and any message a tensor, or an
// error; so do orders of runs. What was read is written to bytes that read the
// same.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "dist/cluster/message.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using sluice::dist::Message;
  using sluice::dist::OrderBody;
  const auto bytes = std::as_bytes(std::span(data, size));
  if (size >= OrderBody::kBytes) {
    const auto body = bytes.first<OrderBody::kBytes>();
    const auto order = OrderBody::Unpack(body);
    if (order.ok()) {
      SLUICE_CHECK(std::ranges::equal(order->Pack(), body));
      sluice::dist::DeadlineIn(order->within);
    }
  }
  const auto message = Message::Unpack({bytes.begin(), bytes.end()});
  if (!message.ok()) return 0;
  SLUICE_CHECK(std::ranges::equal(message->Pack(), bytes));
  const auto tensor = TensorOf(*message);
  if (!tensor.ok()) return 0;
  const auto again = TensorOf(sluice::dist::MessageOf(*tensor));
  SLUICE_CHECK(again.ok() && again->BitEqual(*tensor));
  return 0;
}
