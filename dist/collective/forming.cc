#include "dist/collective/forming.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "dist/collective/hello.h"
#include "dist/collective/sharing.h"
#include "dist/net/descriptor.h"
#include "dist/net/frame.h"
#include "dist/net/little_endian.h"

namespace sluice::dist {
namespace {

using Note = std::function<void(std::string_view)>;
using std::chrono::milliseconds;
constexpr milliseconds kNoteEvery = std::chrono::seconds(10);
// What the others wait longer than rank 0, whose message says who is missing.
constexpr milliseconds kForAnswer = std::chrono::seconds(3);
constexpr milliseconds kTell = std::chrono::seconds(1);

// Where a rank listens; rank 0's is what the launcher said.
struct Place {
  std::string address;
  int port = 0;
};

std::string Ranks(const std::vector<int>& ranks) {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s",
                     fmt::join(ranks, ", "));
}

// Says every 10 s whom this rank waits for, and in the end's error.
class Patience {
 public:
  Patience(std::string me, Deadline deadline, const Note& note)
      : me_(std::move(me)), deadline_(deadline), note_(note) {}

  // When to look again: at the next line or the end.
  Deadline next() const { return std::min(deadline_, next_line_); }
  // When next() has passed. An error where that was the end.
  Status Waited(const std::string& whom) {
    const Deadline now = std::chrono::steady_clock::now();
    const auto seconds =
        std::chrono::duration_cast<std::chrono::seconds>(now - start_).count();
    const std::string line =
        fmt::format("{} waits for {} ({} s)", me_, whom, seconds);
    if (now >= deadline_) return DeadlineExceeded(line);
    if (now >= next_line_) {
      if (note_) note_(line);
      next_line_ += kNoteEvery;
    }
    return {};
  }

 private:
  const std::string me_;
  const Deadline deadline_;
  const Note& note_;
  const Deadline start_ = std::chrono::steady_clock::now();
  Deadline next_line_ = start_ + kNoteEvery;
};

// One place in a frame of peers: 64 bytes of address, padded with zeros, and 4
// of port, little-endian.
constexpr size_t kPlaceBytes = 68;

std::vector<std::byte> Encoded(const std::vector<Place>& places) {
  std::vector<std::byte> bytes(places.size() * kPlaceBytes);
  std::byte* at = bytes.data();
  for (const Place& place : places) {
    std::memcpy(at, place.address.data(),
                std::min<size_t>(place.address.size(), 64));
    at += 64;
    Put(static_cast<uint32_t>(place.port), &at);
  }
  return bytes;
}

Place PlaceAt(const std::vector<std::byte>& bytes, int rank) {
  const std::byte* at = bytes.data() + static_cast<size_t>(rank) * kPlaceBytes;
  Place place;
  place.address.assign(reinterpret_cast<const char*>(at), 64);
  place.address.resize(std::min<size_t>(place.address.find('\0'), 64));
  at += 64;
  place.port = static_cast<int>(Take<uint32_t>(&at) & 0xffff);
  return place;
}

// One process, while it joins.
class Forming {
 public:
  Forming(const LaunchInfo& info, Deadline deadline, const Note& note)
      : info_(info),
        deadline_(deadline),
        note_(note),
        patience_(RankName(info.rank, info.size), deadline, note) {}

  Result<Links> Run(std::optional<Listener> listener) {
    hello_.rank = info_.rank;
    hello_.size = info_.size;
    hello_.token = info_.token;
    hello_.version = SLUICE_VERSION;
    Place next;
    if (info_.rank == 0) {
      door_.emplace(*std::move(listener), hello_, note_);
      SLUICE_ASSIGN_OR_RETURN(next, Gather());
    } else {
      SLUICE_ASSIGN_OR_RETURN(next, MeetRankZero());
    }
    return Connect(next);
  }

 private:
  int size() const { return info_.size; }

  // Rank 0: hears all, tells all. Where one is missing, tells those that came.
  Result<Place> Gather() {
    std::vector<std::optional<Guest>> guests(static_cast<size_t>(size()));
    const Status all = Hear(guests);
    std::vector<Place> places(guests.size());
    for (size_t i = 1; i < guests.size(); ++i) {
      if (!guests[i]) continue;
      places[i] = {guests[i]->hello.address, guests[i]->hello.port};
    }
    for (auto& guest : guests) {
      if (!guest) continue;
      if (all.ok()) {
        SLUICE_RETURN_IF_ERROR(TellPlaces(places, guest->socket));
      } else {
        (void)SendError(guest->socket, 0, all, After(kTell)).ok();
      }
    }
    SLUICE_RETURN_IF_ERROR(all);
    return places[1];
  }

  Status Hear(std::vector<std::optional<Guest>>& guests) {
    while (true) {
      std::vector<int> missing;
      for (int rank = 1; rank < size(); ++rank) {
        if (!guests[static_cast<size_t>(rank)]) missing.push_back(rank);
      }
      if (missing.empty()) return {};
      Result<Guest> guest = door_->Admit(patience_.next());
      if (guest.status().code() == Code::kDeadlineExceeded) {
        SLUICE_RETURN_IF_ERROR(patience_.Waited(Ranks(missing)));
        continue;
      }
      SLUICE_RETURN_IF_ERROR(guest.status());
      const Hello& hello = guest->hello;
      auto& place = guests[static_cast<size_t>(hello.rank)];
      if (hello.lane != Lane::kForming || hello.rank == 0 || place) {
        door_->Refuse(guest->socket.peer(),
                      fmt::format("rank {} is here already", hello.rank));
        continue;
      }
      guest->socket.set_peer(RankName(hello.rank, size()));
      place = *std::move(guest);
    }
  }

  Status TellPlaces(const std::vector<Place>& places, Socket& to) {
    const std::vector<std::byte> payload = Encoded(places);
    Frame frame;
    frame.kind = FrameKind::kPeers;
    frame.count = places.size();
    frame.bytes = payload.size();
    std::array<std::byte, kFrameBytes> header;
    Encode(frame, header);
    const std::array<Bytes, 2> pieces = {Bytes(header), Bytes(payload)};
    return to.Send(pieces, After(kTell));
  }

  // The others. Returns where the next rank listens.
  Result<Place> MeetRankZero() {
    const std::string zero =
        fmt::format("{} at {}:{}", RankName(0, size()), info_.host, info_.port);
    Socket socket;
    while (!socket.connected()) {
      Result<Socket> tried =
          Socket::Connect(info_.host, info_.port, patience_.next());
      if (tried.ok()) {
        socket = *std::move(tried);
      } else if (std::chrono::steady_clock::now() < patience_.next()) {
        return tried.status().WithContext("no way to " + zero);
      } else {
        SLUICE_RETURN_IF_ERROR(patience_.Waited(zero));
      }
    }
    socket.set_peer(RankName(0, size()));
    SLUICE_ASSIGN_OR_RETURN(hello_.address, socket.LocalAddress());
    SLUICE_ASSIGN_OR_RETURN(Listener listener, Listener::Open(hello_.address));
    hello_.port = listener.port();
    door_.emplace(std::move(listener), hello_, note_);
    SLUICE_RETURN_IF_ERROR(SendHello(hello_, socket, deadline_));
    return HearPlaces(socket);
  }

  Result<Place> HearPlaces(Socket& socket) {
    Patience answer(RankName(info_.rank, size()), deadline_ + kForAnswer,
                    note_);
    pollfd readable = {socket.descriptor(), POLLIN, 0};
    while (Wait({&readable, 1}, answer.next()) == 0) {
      SLUICE_RETURN_IF_ERROR(answer.Waited(
          fmt::format("{} to have heard from all", socket.peer())));
    }
    std::array<std::byte, kFrameBytes> header;
    SLUICE_RETURN_IF_ERROR(socket.Receive(header, After(kForAnswer)));
    SLUICE_ASSIGN_OR_RETURN(const Frame frame, Decode(header));
    const size_t bytes = static_cast<size_t>(size()) * kPlaceBytes;
    if (frame.kind != FrameKind::kPeers || frame.bytes != bytes) {
      return ReceiveErrorBehind(frame, socket, After(kForAnswer));
    }
    std::vector<std::byte> payload(bytes);
    SLUICE_RETURN_IF_ERROR(socket.Receive(payload, After(kForAnswer)));
    return PlaceAt(payload, (info_.rank + 1) % size());
  }

  // Nobody waits for anyone here: a listening socket takes connections before
  // its process does.
  Result<Links> Connect(Place place) {
    const int next = (info_.rank + 1) % size();
    if (next == 0) place = {info_.host, info_.port};
    Links links;
    for (const Lane lane : {Lane::kData, Lane::kErrors, Lane::kPulse}) {
      Result<Socket> socket =
          Socket::Connect(place.address, place.port, deadline_);
      if (!socket.ok()) {
        return socket.status().WithContext("no way to " +
                                           RankName(next, size()));
      }
      socket->set_peer(RankName(next, size()));
      hello_.lane = lane;
      SLUICE_RETURN_IF_ERROR(SendHello(hello_, *socket, deadline_));
      (lane == Lane::kData     ? links.next
       : lane == Lane::kErrors ? links.next_errors
                               : links.next_pulse) = *std::move(socket);
    }
    SLUICE_RETURN_IF_ERROR(AdmitPrevious(links));
    return links;
  }

  Status AdmitPrevious(Links& links) {
    const int previous = (info_.rank + size() - 1) % size();
    const std::string name = RankName(previous, size());
    while (!links.previous.connected() || !links.previous_errors.connected() ||
           !links.previous_pulse.connected()) {
      Result<Guest> guest = door_->Admit(patience_.next());
      if (guest.status().code() == Code::kDeadlineExceeded) {
        SLUICE_RETURN_IF_ERROR(patience_.Waited(Ranks({previous})));
        continue;
      }
      SLUICE_RETURN_IF_ERROR(guest.status());
      const Lane lane = guest->hello.lane;
      Socket& place = lane == Lane::kData     ? links.previous
                      : lane == Lane::kErrors ? links.previous_errors
                                              : links.previous_pulse;
      if (guest->hello.rank != previous || lane == Lane::kForming ||
          place.connected()) {
        door_->Refuse(
            guest->socket.peer(),
            fmt::format("rank {} has no business here", guest->hello.rank));
        continue;
      }
      guest->socket.set_peer(name);
      place = std::move(guest->socket);
    }
    return {};
  }

  const LaunchInfo& info_;
  const Deadline deadline_;
  const Note& note_;
  Patience patience_;
  Hello hello_;
  std::optional<Door> door_;
};

}  // namespace

Result<Links> FormRing(const LaunchInfo& info, const GroupOptions& options) {
  const Deadline deadline = After(options.join_timeout);
  std::optional<Listener> listener;
  if (info.listen_fd >= 0) listener.emplace(info.listen_fd);
  if (info.rank == 0 && !listener) {
    return InvalidArgument("rank 0 has no socket to listen on");
  }
  SLUICE_ASSIGN_OR_RETURN(
      Links links,
      Forming(info, deadline, options.note).Run(std::move(listener)));
  Status shared = ShareMemory(info, options, deadline, &links);
  if (!shared.ok()) return links.Fail(info.rank, info.size, std::move(shared));
  return links;
}

}  // namespace sluice::dist
