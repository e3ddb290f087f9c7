// Two processes agree on memory to share, one of which says any bytes: the
// other ends with wires that work as they are, or with an error, in time.
#include <sys/socket.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "dist/collective/sharing.h"
#include "dist/net/local.h"
#include "dist/net/socket.h"
#include "engine/boot_id.h"

namespace sluice::dist {
namespace {

// One end, of a stream on which the other has said all that it says.
Socket Heard(Bytes said, Socket* other) {
  std::array<int, 2> ends;
  SLUICE_CHECK(
      socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends.data()) == 0);
  Socket own(ends[0]);
  own.set_peer("the other");
  *other = Socket(ends[1]);
  const iovec piece = {const_cast<std::byte*>(said.data()), said.size()};
  if (!said.empty()) (void)other->TrySend({&piece, 1});
  shutdown(other->descriptor(), SHUT_WR);
  return own;
}

void Share(uint8_t how, Bytes to, Bytes from) {
  Socket others[2];
  WirePair wires;
  wires.to.data = Heard(to, &others[0]);
  wires.from.data = Heard(from, &others[1]);
  LaunchInfo info;
  info.rank = info.local_rank = how & 1;
  info.size = info.local_size = 2;
  GroupOptions options;
  options.transport = how & 2 ? Transport::kTcp : Transport::kAuto;
  const Status shared =
      ShareMemory(info, options, After(std::chrono::milliseconds(20)), &wires);
  // Nobody can map what was not given to it.
  SLUICE_CHECK(wires.to.ring == nullptr);
  if (shared.ok()) SLUICE_CHECK(wires.to.data.connected());
}

// "$" is the name of this system, which seeds cannot know.
std::string OnThisSystem(std::span<const uint8_t> bytes) {
  std::string text;
  for (const uint8_t byte : bytes) {
    if (byte == '$') {
      text += BootId();
    } else {
      text += static_cast<char>(byte);
    }
  }
  return text;
}

}  // namespace
}  // namespace sluice::dist

// How, where to cut, and what is said on the one stream and the other.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const std::string said =
      sluice::dist::OnThisSystem(std::span(data, size).subspan(2));
  const auto bytes = std::as_bytes(std::span(said.data(), said.size()));
  const size_t cut = bytes.size() * data[1] / 256;
  sluice::dist::Share(data[0], bytes.first(cut), bytes.subspan(cut));
  return 0;
}
