#include "dist/collective/sharing.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "dist/net/frame.h"
#include "dist/net/local.h"
#include "dist/net/shared_ring.h"
#include "engine/threads.h"

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

// "system name secret"
struct Offer {
  std::string system, name, secret;

  std::string Text() const {
    return fmt::format("{} {} {}", system, name, secret);
  }
  static Offer Parse(std::string_view text) {
    Offer offer;
    for (std::string* part : {&offer.system, &offer.name, &offer.secret}) {
      const size_t end = std::min(text.find(' '), text.size());
      *part = text.substr(0, end);
      text.remove_prefix(std::min(end + 1, text.size()));
    }
    return offer;
  }
};

// One process, while it agrees with both neighbours.
class Sharing {
 public:
  Sharing(const LaunchInfo& info, const GroupOptions& options,
          Deadline deadline, Links* links)
      : rank_(info.rank),
        size_(info.size),
        // More processes than cores: who spins holds up whom it waits for.
        spins_(info.pinned || info.JobLocalSize() <= AvailableCores()),
        options_(options),
        deadline_(deadline),
        links_(*links) {}

  Status Run() {
    SLUICE_RETURN_IF_ERROR(Say(Prepare(), rank_, links_.next, deadline_));
    Said offer, theirs;
    SLUICE_RETURN_IF_ERROR(Hear(links_.previous, deadline_, &offer));
    Said mine = Accept(offer);
    SLUICE_RETURN_IF_ERROR(Say(mine, rank_, links_.previous, deadline_));
    SLUICE_RETURN_IF_ERROR(Hear(links_.next, deadline_, &theirs));
    if (theirs.answer == Answer::kYes) Hand();
    if (mine.answer == Answer::kYes) {
      mine = Open();
      SLUICE_RETURN_IF_ERROR(Say(mine, rank_, links_.previous, deadline_));
    }
    if (theirs.answer == Answer::kYes) {
      SLUICE_RETURN_IF_ERROR(Hear(links_.next, deadline_, &theirs));
    }
    return Decide(mine, theirs);
  }

 private:
  // What this rank offers to the next one.
  Said Prepare() {
    if (options_.transport == Transport::kTcp) {
      return {Answer::kNo, Choice()};
    }
    const Status prepared = TryPrepare();
    if (!prepared.ok()) return Cannot(prepared);
    return {Answer::kYes, offer_.Text()};
  }
  Status TryPrepare() {
    offer_.system = BootId();
    if (offer_.system.empty()) {
      return Unavailable("the system does not say which one it is");
    }
    SLUICE_ASSIGN_OR_RETURN(offer_.name, RandomWord());
    SLUICE_ASSIGN_OR_RETURN(offer_.secret, RandomWord());
    SLUICE_ASSIGN_OR_RETURN(mark_, RandomWord());
    SLUICE_ASSIGN_OR_RETURN(ring_, SharedRing::Create(mark_));
    SLUICE_ASSIGN_OR_RETURN(listener_, ListenLocally(offer_.name));
    return {};
  }
  std::string Choice() const {
    return RankName(rank_, size_) + " is to use TCP";
  }

  // What this rank answers to the offer of the one before.
  Said Accept(const Said& offered) {
    if (offered.answer != Answer::kYes) return offered;
    if (options_.transport == Transport::kTcp) {
      return {Answer::kNo, Choice()};
    }
    const Offer offer = Offer::Parse(offered.text);
    if (offer.system != BootId()) {
      return {Answer::kNo, "they run on different systems"};
    }
    Result<Socket> socket = ConnectLocally(offer.name);
    if (!socket.ok()) return Cannot(socket.status());
    from_previous_ = *std::move(socket);
    from_previous_.set_peer(links_.previous.peer());
    const Status shown = from_previous_.Send(BytesOf(offer.secret), deadline_);
    if (!shown.ok()) return Cannot(shown);
    return {Answer::kYes, ""};
  }

  // The next one has connected. Where anything fails, it is told so by the end
  // of that connection.
  void Hand() {
    Result<Socket> guest = AdmitLocally(*listener_, offer_.secret);
    listener_.reset();
    if (!guest.ok()) return;
    guest->set_peer(links_.next.peer());
    if (!SendDescriptor(ring_->descriptor(), *guest, deadline_).ok()) return;
    to_next_ = *std::move(guest);
  }

  // The memory of the one before: what lies in it, as proof.
  Said Open() {
    const auto open = [&]() -> Status {
      SLUICE_ASSIGN_OR_RETURN(Descriptor memory,
                              ReceiveDescriptor(from_previous_, deadline_));
      SLUICE_ASSIGN_OR_RETURN(previous_ring_,
                              SharedRing::Open(std::move(memory)));
      return {};
    };
    const Status opened = open();
    if (!opened.ok()) return Cannot(opened);
    return {Answer::kYes, previous_ring_->text()};
  }

  // `mine` is what was agreed on with the one before, `theirs` with the next.
  Status Decide(const Said& mine, const Said& theirs) {
    if (mine.answer == Answer::kYes) {
      links_.previous = std::move(from_previous_);
      links_.from_previous = std::move(previous_ring_);
    }
    if (theirs.answer == Answer::kYes) {
      if (theirs.text != mark_) {
        return DataLoss(
            fmt::format("{} has mapped other memory than it was "
                        "given",
                        links_.next.peer()));
      }
      ring_->CloseDescriptor();
      links_.next = std::move(to_next_);
      links_.to_next = std::move(ring_);
    }
    // A stream's waits are longer, and each look at it a system call.
    links_.spins = spins_ && links_.to_next && links_.from_previous;
    SLUICE_RETURN_IF_ERROR(Check(mine, links_.previous.peer()));
    SLUICE_RETURN_IF_ERROR(Check(theirs, links_.next.peer()));
    if (theirs.answer == Answer::kCannot && options_.note) {
      options_.note(fmt::format("{} sends to {} by TCP: {}",
                                RankName(rank_, size_), links_.next.peer(),
                                theirs.text));
    }
    return {};
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
  const bool spins_;
  const GroupOptions& options_;
  const Deadline deadline_;
  Links& links_;
  // With the next one.
  Offer offer_;
  std::string mark_;
  std::unique_ptr<SharedRing> ring_;
  std::optional<Listener> listener_;
  Socket to_next_;
  // With the one before.
  Socket from_previous_;
  std::unique_ptr<SharedRing> previous_ring_;
};

}  // namespace

Status ShareMemory(const LaunchInfo& info, const GroupOptions& options,
                   Deadline deadline, Links* links) {
  return Sharing(info, options, deadline, links).Run();
}

}  // namespace sluice::dist
