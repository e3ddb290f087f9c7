#include "engine/runtime/executor_group.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "engine/runtime/transfer.h"

namespace sluice {
namespace {

constexpr auto kCompute = Accelerator::kCompute;

// Of parts that are looked at in turns anyway.
class Nobody final : public Waker {
 public:
  void Wake() override {}
} nobody;

}  // namespace

ExecutorGroup::ExecutorGroup(const std::vector<Executor*>& members)
    : members_(members) {
  for (const Executor* member : members) {
    turns_.push_back(member->device_.accelerator());
  }
  std::sort(turns_.begin(), turns_.end(), std::less<>());
}

// What is under way uses the work, too.
ExecutorGroup::~ExecutorGroup() {
  for (Executor* member : members_) member->Drain();
}

std::unique_ptr<ExecutorGroup> ExecutorGroup::Make(
    const std::vector<Executor*>& members) {
  if (members.size() < 2) return nullptr;
  std::unique_ptr<ExecutorGroup> group(new ExecutorGroup(members));
  if (!group->FindEdges() || !group->FindOrder()) return nullptr;
  return group;
}

// False where a member has dealings with others, or does not reach one that
// sends to it.
bool ExecutorGroup::FindEdges() {
  std::map<uint64_t, Accelerator*> here;
  for (const Executor* member : members_) {
    here[member->device_.incarnation()] = member->device_.accelerator();
  }
  for (const Executor* member : members_) {
    if (!member->plan_.exchanges.empty()) return false;
    for (const Instruction& instruction : member->plan_.instructions) {
      const Kernel& kernel = *member->plan_.kernels[instruction.kernel];
      if (kernel.why_not_captured().empty()) continue;
      const Transfer transfer = TransferOf(kernel);
      if (transfer.edge == nullptr) return false;
      const auto from = here.find(transfer.edge->sender);
      const auto to = here.find(transfer.edge->receiver);
      if (from == here.end() || to == here.end()) return false;
      const Accelerator::Turn turn(*to->second);
      if (!to->second->Reaches(*from->second)) return false;
      if (transfer.call != Transfer::kSendStart) continue;
      edges_.push_back({transfer.edge->number, from->second, to->second});
    }
  }
  return !edges_.empty();
}

// Each member as far as the others let it, in turns. As their orders are parts
// of one order of the step, in which an edge's starts come before its waits,
// one of them can always go on.
bool ExecutorGroup::FindOrder() {
  std::set<std::pair<Transfer::Call, int>> started;
  const auto may_come = [&](const Transfer& transfer) {
    const int edge = transfer.edge->number;
    switch (transfer.call) {
      case Transfer::kSendWait:
        return started.count({Transfer::kRecvStart, edge}) > 0;
      case Transfer::kRecvWait:
        return started.count({Transfer::kSendStart, edge}) > 0;
      default:
        started.emplace(transfer.call, edge);
        return true;
    }
  };
  std::map<const Executor*, uint32_t> reached;
  for (bool moved = true; std::exchange(moved, false);) {
    for (Executor* member : members_) {
      const Plan& plan = member->plan_;
      const uint32_t begin = reached[member];
      uint32_t end = begin;
      for (; end < plan.instructions.size(); ++end) {
        const Transfer transfer =
            TransferOf(*plan.kernels[plan.instructions[end].kernel]);
        if (transfer.edge != nullptr && !may_come(transfer)) break;
      }
      if (end == begin) continue;
      order_.push_back({member, begin, end});
      reached[member] = end;
      moved = true;
    }
  }
  return std::all_of(members_.begin(), members_.end(), [&](const Executor* m) {
    return reached[m] == m->plan_.instructions.size();
  });
}

// What an observer sees it sees of each part.
bool ExecutorGroup::MayReplay() const {
  return std::all_of(
      members_.begin(), members_.end(), [](const Executor* member) {
        return member->ran_before_ && member->observer_ == nullptr;
      });
}

void ExecutorGroup::Run() {
  RunInTurn(0);
}

// When those before it are this thread's.
void ExecutorGroup::RunInTurn(size_t first) {
  if (first == turns_.size()) {
    RunHeld();
    return;
  }
  const Accelerator::Turn turn(*turns_[first]);
  RunInTurn(first + 1);
}

void ExecutorGroup::RunHeld() {
  StepStop& stop = *members_[0]->stop_;
  const bool all_ran =
      std::all_of(members_.begin(), members_.end(),
                  [](const Executor* member) { return member->ran_before_; });
  if (!all_ran) work_.reset();  // it has the old addresses
  if (!stop.stopped() && !refused_ && MayReplay()) {
    if (work_ == nullptr) {
      if (const Status captured = Capture(); !captured.ok()) {
        refused_ = true;
        MutexLock lock(why_mutex_);
        why_not_captured_ = captured.message();
      }
    }
    if (work_ != nullptr) {
      const Status status = stop.stopped() ? Status() : Replay();
      for (Executor* member : members_) member->EndQueued(status);
      return;
    }
  }
  RunInTurns();
}

// Never waits for another: who would wait gives the turn to the next.
void ExecutorGroup::RunInTurns() {
  std::vector<Executor*> left = members_;
  while (!left.empty()) {
    bool moved = false;
    for (Executor*& member : left) {
      const uint32_t before = member->reached_;
      const bool ended = member->Resume(&nobody);
      moved = moved || ended || member->reached_ != before;
      if (ended) member = nullptr;
    }
    std::erase(left, nullptr);
    if (moved) continue;
    members_[0]->stop_->Stop(
        Internal("the parts of the step on several GPUs wait for each other"));
  }
}

Status ExecutorGroup::Replay() {
  SLUICE_RETURN_IF_ERROR(Launch());
  for (Executor* member : members_) {
    SLUICE_RETURN_IF_ERROR(member->device_.accelerator()->Use());
    member->Passed(static_cast<uint32_t>(member->bound_.size()),
                   Executor::Call::kNone);
    SLUICE_RETURN_IF_ERROR(member->staging_->CopyOut(member->slot_));
    member->MarkInitialized();
  }
  return {};
}

// Behind what all compute queues have, and before what they will have.
Status ExecutorGroup::Launch() {
  SLUICE_RETURN_IF_ERROR(Join());
  SLUICE_RETURN_IF_ERROR(work_->Launch());
  return Fork();
}

// The first one's compute queue waits for the others'. Uses the first.
Status ExecutorGroup::Join() {
  for (size_t m = 1; m < members_.size(); ++m) {
    Accelerator& accelerator = *members_[m]->device_.accelerator();
    SLUICE_RETURN_IF_ERROR(accelerator.Use());
    SLUICE_RETURN_IF_ERROR(accelerator.Record(reached_[m], kCompute));
  }
  SLUICE_RETURN_IF_ERROR(First().Use());
  for (size_t m = 1; m < members_.size(); ++m) {
    SLUICE_RETURN_IF_ERROR(First().Wait(reached_[m], kCompute));
  }
  return {};
}

// They wait for it.
Status ExecutorGroup::Fork() {
  SLUICE_RETURN_IF_ERROR(First().Record(reached_[0], kCompute));
  for (size_t m = 1; m < members_.size(); ++m) {
    Accelerator& accelerator = *members_[m]->device_.accelerator();
    SLUICE_RETURN_IF_ERROR(accelerator.Use());
    SLUICE_RETURN_IF_ERROR(accelerator.Wait(reached_[0], kCompute));
  }
  return {};
}

Status ExecutorGroup::MakeEvents() {
  for (size_t m = reached_.size(); m < members_.size(); ++m) {
    Accelerator& accelerator = *members_[m]->device_.accelerator();
    SLUICE_RETURN_IF_ERROR(accelerator.Use());
    SLUICE_ASSIGN_OR_RETURN(Accelerator::Event event, accelerator.MakeEvent());
    reached_.push_back(std::move(event));
  }
  return {};
}

// The parts' own errors recur when they are then run in turns.
Status ExecutorGroup::Capture() {
  SLUICE_RETURN_IF_ERROR(MakeEvents());
  CapturedExchange exchange;
  SLUICE_RETURN_IF_ERROR(exchange.Open(edges_));
  SLUICE_RETURN_IF_ERROR(First().Use());
  SLUICE_RETURN_IF_ERROR(First().BeginCapture(Accelerator::kTogether));
  Status status = Record(exchange);
  const Status back = First().Use();
  Result<std::unique_ptr<CapturedWork>> captured = First().EndCapture();
  for (Executor* member : members_) {
    member->Passed(0, Executor::Call::kNone);  // recorded, not run
  }
  if (status.ok()) status = back;
  if (status.ok()) status = captured.status();
  if (status.ok()) work_ = *std::move(captured);
  return status;
}

Status ExecutorGroup::Record(CapturedExchange& exchange) {
  SLUICE_RETURN_IF_ERROR(Fork());
  for (const Piece& piece : order_) {
    SLUICE_RETURN_IF_ERROR(RecordPiece(piece, exchange));
  }
  return Join();
}

Status ExecutorGroup::RecordPiece(const Piece& piece,
                                  CapturedExchange& exchange) {
  Executor& member = *piece.member;
  SLUICE_RETURN_IF_ERROR(member.device_.accelerator()->Use());
  StepStop failed;  // the capture, not the step
  Exchange* const own = std::exchange(member.step_.exchange, &exchange);
  member.RunSerial<true>(piece.begin, piece.end, nullptr, failed);
  member.step_.exchange = own;
  return failed.stopped() ? failed.status() : Status();
}

}  // namespace sluice
