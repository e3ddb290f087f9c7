#include "dist/collective/sharing.h"

#include <fmt/format.h>

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "dist/collective/offer.h"
#include "dist/net/frame.h"
#include "dist/net/local.h"
#include "dist/net/shared_ring.h"
#include "dist/own_cores.h"
#include "engine/boot_id.h"

namespace sluice::dist {
namespace {

// What a text says, as the frame's count: yes, or no and why. That a neighbour
// does not want to, or is elsewhere, is nothing to tell anyone.
enum class Answer : uint64_t { kNo, kYes, kCannot };

struct Said {
  Answer answer = Answer::kNo;
  std::string text;
};

Status Say(const Said& said, int rank, Socket& to, Deadline deadline) {
  return SendText(FrameKind::kMemory, static_cast<uint64_t>(said.answer),
                  said.text, rank, to, deadline);
}

Status Hear(Socket& from, Deadline deadline, Said* said) {
  SLUICE_ASSIGN_OR_RETURN(const Frame frame, ReceiveHeader(from, deadline));
  if (frame.kind != FrameKind::kMemory) {
    return ReceiveErrorBehind(frame, from, deadline);
  }
  SLUICE_ASSIGN_OR_RETURN(said->text, ReceiveText(frame, from, deadline));
  if (frame.count > static_cast<uint64_t>(Answer::kCannot)) {
    return DataLoss(fmt::format("{} gives the unknown answer {}", from.peer(),
                                frame.count));
  }
  said->answer = static_cast<Answer>(frame.count);
  return {};
}

Said Cannot(const Status& why) {
  return {Answer::kCannot, why.message()};
}

// One process, while it agrees with others.
class Sharing {
 public:
  Sharing(const LaunchInfo& info, const GroupOptions& options,
          Deadline deadline)
      : rank_(info.rank),
        size_(info.size),
        options_(options),
        deadline_(deadline) {}

  // The wire of the rank that sends; `says` why there is none.
  Status Give(Wire& wire, bool says) {
    Given given;
    const Said mine = Prepare(&given);
    SLUICE_RETURN_IF_ERROR(Say(mine, rank_, wire.data, deadline_));
    Said theirs;
    SLUICE_RETURN_IF_ERROR(Hear(wire.data, deadline_, &theirs));
    if (theirs.answer == Answer::kYes && mine.answer != Answer::kYes) {
      return DataLoss(fmt::format("{} accepts memory that it was not offered",
                                  wire.data.peer()));
    }
    Socket local;
    if (theirs.answer == Answer::kYes) {
      local = Hand(given, wire.data.peer());
      SLUICE_RETURN_IF_ERROR(Hear(wire.data, deadline_, &theirs));
    }
    SLUICE_RETURN_IF_ERROR(Check(theirs, wire.data.peer()));
    if (theirs.answer == Answer::kYes) {
      if (theirs.text != given.mark) {
        return DataLoss(fmt::format(
            "{} has mapped other memory than it was given", wire.data.peer()));
      }
      given.ring->CloseDescriptor();
      wire.data = std::move(local);
      wire.ring = std::move(given.ring);
    } else if (theirs.answer == Answer::kCannot && says && options_.note) {
      options_.note(fmt::format("{} sends to {} by TCP: {}",
                                RankName(rank_, size_), wire.data.peer(),
                                theirs.text));
    }
    return {};
  }

  // That of the rank that receives.
  Status Take(Wire& wire) {
    Said offer;
    SLUICE_RETURN_IF_ERROR(Hear(wire.data, deadline_, &offer));
    Socket local;
    Said mine = Accept(offer, wire.data.peer(), &local);
    SLUICE_RETURN_IF_ERROR(Say(mine, rank_, wire.data, deadline_));
    std::unique_ptr<SharedRing> ring;
    if (mine.answer == Answer::kYes) {
      mine = Open(local, &ring);
      SLUICE_RETURN_IF_ERROR(Say(mine, rank_, wire.data, deadline_));
    }
    SLUICE_RETURN_IF_ERROR(Check(mine, wire.data.peer()));
    if (mine.answer == Answer::kYes) {
      wire.data = std::move(local);
      wire.ring = std::move(ring);
    }
    return {};
  }

 private:
  // What this rank gives to another.
  struct Given {
    Offer offer;
    std::string mark;
    std::unique_ptr<SharedRing> ring;
    std::optional<Listener> listener;
  };

  Said Prepare(Given* given) const {
    if (options_.transport == Transport::kTcp) {
      return {Answer::kNo, Choice()};
    }
    const Status prepared = TryPrepare(given);
    if (!prepared.ok()) return Cannot(prepared);
    return {Answer::kYes, given->offer.Text()};
  }
  static Status TryPrepare(Given* given) {
    Offer& offer = given->offer;
    offer.system = BootId();
    if (offer.system.empty()) {
      return Unavailable("the system does not say which one it is");
    }
    SLUICE_ASSIGN_OR_RETURN(offer.name, RandomWord());
    SLUICE_ASSIGN_OR_RETURN(offer.secret, RandomWord());
    SLUICE_ASSIGN_OR_RETURN(given->mark, RandomWord());
    SLUICE_ASSIGN_OR_RETURN(given->ring, SharedRing::Create(given->mark));
    SLUICE_ASSIGN_OR_RETURN(given->listener, ListenLocally(offer.name));
    return {};
  }
  std::string Choice() const {
    return RankName(rank_, size_) + " is to use TCP";
  }

  // What this rank answers to an offer.
  Said Accept(const Said& offered, const std::string& peer,
              Socket* local) const {
    if (offered.answer != Answer::kYes) return offered;
    if (options_.transport == Transport::kTcp) {
      return {Answer::kNo, Choice()};
    }
    const Result<Offer> offer = Offer::Parse(offered.text);
    if (!offer.ok()) return Cannot(offer.status());
    if (offer->system != BootId()) {
      return {Answer::kNo, "they run on different systems"};
    }
    Result<Socket> socket = ConnectLocally(offer->name);
    if (!socket.ok()) return Cannot(socket.status());
    *local = *std::move(socket);
    local->set_peer(peer);
    const Status shown = local->Send(BytesOf(offer->secret), deadline_);
    if (!shown.ok()) return Cannot(shown);
    return {Answer::kYes, ""};
  }

  // The other has connected. Where anything fails, it is told so by the end of
  // that connection.
  Socket Hand(Given& given, const std::string& peer) const {
    Result<Socket> guest = AdmitLocally(*given.listener, given.offer.secret);
    given.listener.reset();
    if (!guest.ok()) return {};
    guest->set_peer(peer);
    if (!SendDescriptor(given.ring->descriptor(), *guest, deadline_).ok()) {
      return {};
    }
    return *std::move(guest);
  }

  // The memory of the other: what lies in it, as proof.
  Said Open(Socket& local, std::unique_ptr<SharedRing>* ring) const {
    const auto open = [&]() -> Status {
      SLUICE_ASSIGN_OR_RETURN(Descriptor memory,
                              ReceiveDescriptor(local, deadline_));
      SLUICE_ASSIGN_OR_RETURN(*ring, SharedRing::Open(std::move(memory)));
      return {};
    };
    const Status opened = open();
    if (!opened.ok()) return Cannot(opened);
    return {Answer::kYes, (*ring)->text()};
  }

  Status Check(const Said& said, const std::string& peer) const {
    if (said.answer == Answer::kYes ||
        options_.transport != Transport::kShared) {
      return {};
    }
    return FailedPrecondition(
        fmt::format("{} is to share memory with {}, which cannot be: {}",
                    RankName(rank_, size_), peer, said.text));
  }

  static Bytes BytesOf(const std::string& text) {
    return std::as_bytes(std::span(text.data(), text.size()));
  }

  const int rank_, size_;
  const GroupOptions& options_;
  const Deadline deadline_;
};

}  // namespace

Status ShareMemory(const LaunchInfo& info, const GroupOptions& options,
                   Deadline deadline, Links* links) {
  Sharing sharing(info, options, deadline);
  const int next = (info.rank + 1) % info.size;
  // Wires in the order of who sends and who receives.
  const auto mine = static_cast<size_t>(info.rank);
  for (size_t from = 0; from < links->from.size(); ++from) {
    if (from == mine) {
      for (size_t to = 0; to < links->to.size(); ++to) {
        Wire& wire = links->to[to];
        if (!wire.data.connected()) continue;
        SLUICE_RETURN_IF_ERROR(sharing.Give(wire, std::cmp_equal(to, next)));
      }
    } else if (links->from[from].data.connected()) {
      SLUICE_RETURN_IF_ERROR(sharing.Take(links->from[from]));
    }
  }
  // More processes than cores: who spins holds up whom it waits for.
  links->spins = OwnCores(info.pinned, info.JobLocalSize()) > 0;
  return {};
}

Status ShareMemory(const LaunchInfo& info, const GroupOptions& options,
                   Deadline deadline, WirePair* wires) {
  Sharing sharing(info, options, deadline);
  if (info.rank == 0) {
    SLUICE_RETURN_IF_ERROR(sharing.Give(wires->to, /*says=*/true));
    return sharing.Take(wires->from);
  }
  SLUICE_RETURN_IF_ERROR(sharing.Take(wires->from));
  return sharing.Give(wires->to, /*says=*/true);
}

}  // namespace sluice::dist
