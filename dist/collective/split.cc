// Parts of a job: each has its own ring and coordinator, formed as those of the
// job are (forming.h), at the lowest of its ranks, of which all have heard from
// the group that is split.
#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dist/collective/group.h"
#include "dist/collective/places.h"
#include "dist/membership/rank_name.h"
#include "dist/net/little_endian.h"
#include "engine/caught.h"

namespace sluice::dist {
namespace {

// What each rank tells all: 4 bytes each of colour, key and port,
// little-endian, and the address.
struct Seat {
  int color = 0, key = 0;
  int port = 0;  // where it listens
  std::string address;
};
constexpr size_t kSeatBytes = 3 * sizeof(uint32_t) + kAddressBytes;

std::array<std::byte, kSeatBytes> Encode(const Seat& seat) {
  std::array<std::byte, kSeatBytes> bytes{};
  std::byte* at = bytes.data();
  for (const int field : {seat.color, seat.key, seat.port}) {
    Put(static_cast<uint32_t>(field), &at);
  }
  PutText(seat.address, kAddressBytes, &at);
  return bytes;
}

Seat DecodeSeat(const std::byte* at) {
  Seat seat;
  for (int* field : {&seat.color, &seat.key, &seat.port}) {
    *field = static_cast<int>(Take<uint32_t>(&at));
  }
  seat.address = TakeText(kAddressBytes, &at);
  return seat;
}

// The ranks of a colour in their order.
std::vector<int> MembersOf(const std::vector<Seat>& seats, int color) {
  std::vector<int> members;
  for (size_t rank = 0; rank < seats.size(); ++rank) {
    if (seats[rank].color == color) members.push_back(static_cast<int>(rank));
  }
  std::stable_sort(members.begin(), members.end(), [&](int a, int b) {
    return seats[static_cast<size_t>(a)].key <
           seats[static_cast<size_t>(b)].key;
  });
  return members;
}

}  // namespace

Group* Group::Subgroup(std::string_view name) {
  for (const auto& [known, part] : parts_) {
    if (known == name) return part.get();
  }
  return nullptr;
}

Status Group::Split(std::string_view name, int color, int key) {
  try {
    Result<std::unique_ptr<Group>> part = FormPart(name, color, key);
    if (!part.ok()) return Break("split", name, part.status());
    if (*part != nullptr) {
      parts_.emplace_back(name, *std::move(part));
    }
    return {};
  } catch (...) {
    return Break("split", name, CaughtStatus());
  }
}

Result<std::unique_ptr<Group>> Group::FormPart(std::string_view name, int color,
                                               int key) {
  SLUICE_RETURN_IF_ERROR(broken_);
  if (name.empty() || Subgroup(name) != nullptr) {
    return AlreadyExists("a part has a name of its own");
  }
  Seat own{color, key, 0, links_.address};
  std::optional<Listener> listener;
  if (size_ > 1) {
    SLUICE_ASSIGN_OR_RETURN(
        listener, Listener::OpenPreferring(links_.address, info_.own_port,
                                           options_.note));
    own.port = listener->port();
  }
  std::vector<std::byte> all(static_cast<size_t>(size_) * kSeatBytes);
  SLUICE_RETURN_IF_ERROR(AllGather(fmt::format("split/{}", name),
                                   Encode(own).data(), kSeatBytes, all.data()));
  if (color < 0) return std::unique_ptr<Group>();
  std::vector<Seat> seats;
  for (size_t i = 0; i < all.size(); i += kSeatBytes) {
    seats.push_back(DecodeSeat(&all[i]));
  }
  const std::vector<int> members = MembersOf(seats, color);
  const Seat& first = seats[static_cast<size_t>(members[0])];
  LaunchInfo info = info_;
  info.size = static_cast<int>(members.size());
  info.local_size = 0;
  info.host = first.address;
  info.port = first.port;
  info.listen_fd = -1;
  info.job_ranks.clear();
  info.job_size = info_.JobSize();
  info.job_local_size = info_.JobLocalSize();
  const std::vector<int>& hosts = links_.plan.hosts();
  for (const int member : members) {
    const bool here = hosts.empty() || hosts[static_cast<size_t>(member)] ==
                                           hosts[static_cast<size_t>(rank_)];
    if (member == rank_) {
      info.rank = static_cast<int>(info.job_ranks.size());
      info.local_rank = info.local_size;
    }
    info.local_size += here ? 1 : 0;
    info.job_ranks.push_back(info_.JobRank(member));
  }
  // Ranks of a host know it by one address: they may listen at several of it.
  if (info.node.empty() && !hosts.empty()) {
    const auto first_here = std::find(hosts.begin(), hosts.end(),
                                      hosts[static_cast<size_t>(rank_)]);
    info.node = seats[static_cast<size_t>(first_here - hosts.begin())].address;
  }
  const std::string whose = SubgroupName(name, info.job_ranks, info.job_size);
  info.group += "/" + whose;
  GroupOptions options = options_;
  options.may_join_again = false;
  options.joined = nullptr;
  if (options_.note) {
    options.note = [note = options_.note, whose](std::string_view line) {
      note(fmt::format("{}: {}", whose, line));
    };
  }
  if (listener) info.listen_fd = listener->Release();
  // Who ends meanwhile is missed by this group first.
  const int apart = size_ > 1 ? links_.membership->apart() : -1;
  Result<std::unique_ptr<Group>> part = Join(info, options, apart);
  if (!part.ok()) {
    Status wrong = part.status().WithContext(whose);
    // Whose end that was, if it was one, has been decided before.
    return size_ > 1 ? links_.membership->Fail(wrong) : wrong;
  }
  (*part)->whose_ = whose;
  return part;
}

}  // namespace sluice::dist
