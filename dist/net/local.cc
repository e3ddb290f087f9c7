#include "dist/net/local.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "dist/net/stream.h"

namespace sluice::dist {
namespace {

struct LocalAddress {
  sockaddr_un storage{};
  socklen_t size = 0;

  const sockaddr* get() const {
    return reinterpret_cast<const sockaddr*>(&storage);
  }
};

// A name that begins with a null character is an abstract one: unix(7).
LocalAddress AddressOf(const std::string& name) {
  LocalAddress address;
  address.storage.sun_family = AF_UNIX;
  const size_t length =
      std::min(name.size(), sizeof(address.storage.sun_path) - 1);
  std::memcpy(address.storage.sun_path + 1, name.data(), length);
  address.size =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
  return address;
}

Descriptor NewSocket() {
  return Descriptor(
      socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

Status Failed(std::string_view what, int error) {
  return Unavailable(fmt::format("{}: {}", what, std::strerror(error)));
}

// A byte with room for a descriptor beside it.
struct Parcel {
  Parcel() {
    message.msg_iov = &vector;
    message.msg_iovlen = 1;
    message.msg_control = room;
    message.msg_controllen = sizeof(room);
  }

  char byte = 0;
  iovec vector = {&byte, 1};
  alignas(cmsghdr) char room[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
};

// Waits for a socket to be ready and then calls; bytes moved, at least one.
template <typename Call>
Result<size_t> WhenReady(const Socket& socket, short event, Deadline deadline,
                         Call call) {
  while (true) {
    pollfd waiting = {socket.descriptor(), event, 0};
    const int ready = Wait({&waiting, 1}, deadline);
    if (ready == 0) {
      return DeadlineExceeded(
          fmt::format("no descriptor with {} for so long", socket.peer()));
    }
    const ssize_t n = call();
    if (n > 0) return static_cast<size_t>(n);
    if (n == 0) return Closed(socket.peer());
    SLUICE_RETURN_IF_ERROR(Failure(errno, socket.peer()));
  }
}

}  // namespace

Result<std::string> RandomWord() {
  std::array<unsigned char, 16> bytes;
  if (getrandom(bytes.data(), bytes.size(), 0) !=
      static_cast<ssize_t>(bytes.size())) {
    return Failed("getrandom", errno);
  }
  std::string word;
  for (const unsigned char byte : bytes) word += fmt::format("{:02x}", byte);
  return word;
}

Result<Listener> ListenLocally(const std::string& name) {
  Descriptor socket = NewSocket();
  const LocalAddress address = AddressOf(name);
  if (socket.get() < 0 || bind(socket.get(), address.get(), address.size) < 0 ||
      listen(socket.get(), SOMAXCONN) < 0) {
    return Failed("cannot listen locally", errno);
  }
  return Listener(socket.Release());
}

Result<Socket> ConnectLocally(const std::string& name) {
  Descriptor socket = NewSocket();
  const LocalAddress address = AddressOf(name);
  if (socket.get() < 0 ||
      connect(socket.get(), address.get(), address.size) < 0) {
    return Failed("cannot connect locally", errno);
  }
  return Socket(socket.Release());
}

Result<Socket> AdmitLocally(Listener& listener, const std::string& secret) {
  while (true) {
    SLUICE_ASSIGN_OR_RETURN(Socket guest, listener.Accept(Deadline()));
    std::string shown(secret.size(), '\0');
    const ssize_t n =
        recv(guest.descriptor(), shown.data(), shown.size(), MSG_DONTWAIT);
    if (n == static_cast<ssize_t>(secret.size()) && shown == secret) {
      return guest;
    }
  }
}

Status SendDescriptor(int descriptor, Socket& to, Deadline deadline) {
  Parcel parcel;
  cmsghdr* const header = CMSG_FIRSTHDR(&parcel.message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &descriptor, sizeof(descriptor));
  return WhenReady(to, POLLOUT, deadline,
                   [&] {
                     return sendmsg(to.descriptor(), &parcel.message,
                                    MSG_NOSIGNAL);
                   })
      .status();
}

Result<Descriptor> ReceiveDescriptor(Socket& from, Deadline deadline) {
  Parcel parcel;
  SLUICE_RETURN_IF_ERROR(WhenReady(from, POLLIN, deadline, [&] {
                           return recvmsg(from.descriptor(), &parcel.message,
                                          MSG_CMSG_CLOEXEC);
                         }).status());
  // The system gives no more than there is room for.
  const cmsghdr* const header = CMSG_FIRSTHDR(&parcel.message);
  if (header == nullptr || header->cmsg_level != SOL_SOCKET ||
      header->cmsg_type != SCM_RIGHTS ||
      header->cmsg_len != CMSG_LEN(sizeof(int))) {
    return DataLoss(fmt::format("{} has sent no descriptor", from.peer()));
  }
  int descriptor = -1;
  std::memcpy(&descriptor, CMSG_DATA(header), sizeof(descriptor));
  return Descriptor(descriptor);
}

}  // namespace sluice::dist
