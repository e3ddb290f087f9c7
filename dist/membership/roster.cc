#include "dist/membership/roster.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "dist/membership/rank_name.h"
#include "engine/parse_number.h"

namespace sluice::dist {
namespace {

using std::chrono::milliseconds;

// What is said of an error.
constexpr size_t kMostWhy = 500;
// Groups that come apart at once, without anybody being lost.
constexpr int kMostInVain = 5;
constexpr int kMostSeats = 4096;
constexpr size_t kMostAddress = 255, kMostBuild = 64;

Status NoPacket(std::string_view what) {
  return DataLoss(
      fmt::format("'{}' is no word of a roster", what.substr(0, 40)));
}

// Takes the next word off the text.
std::string_view TakeWord(std::string_view* text) {
  const size_t end = std::min(text->find(' '), text->size());
  const std::string_view word = text->substr(0, end);
  text->remove_prefix(std::min(end + 1, text->size()));
  return word;
}

template <typename T>
bool Number(std::string_view word, T least, T most, T* value) {
  const auto number = ParseWhole<T>(word);
  if (!number || *number < least || *number > most) return false;
  *value = *number;
  return true;
}

bool Time(std::string_view word, milliseconds* time) {
  constexpr int64_t kMost = int64_t{1} << 40;
  int64_t count = 0;
  if (!Number<int64_t>(word, 0, kMost, &count)) return false;
  *time = milliseconds(count);
  return true;
}

}  // namespace

std::string Encoded(const Meeting& meeting) {
  std::string why = meeting.why.substr(0, kMostWhy);
  std::replace(why.begin(), why.end(), '\n', ' ');
  return fmt::format("meet {} {} {} {} {} {}", meeting.port, meeting.done,
                     meeting.patience.count(), meeting.silence.count(),
                     meeting.build, why);
}

std::string Encoded(const Assembly& assembly) {
  std::string text = fmt::format("go {} {} {}", assembly.epoch, assembly.port,
                                 assembly.address);
  for (size_t i = 0; i < assembly.seats.size(); ++i) {
    text += fmt::format("{}{}", i == 0 ? ' ' : ',', assembly.seats[i]);
    if (assembly.hosts[i] > 0) text += fmt::format("/{}", assembly.hosts[i]);
  }
  return text;
}

Result<Meeting> ParseMeeting(std::string_view text) {
  std::string_view rest = text;
  Meeting meeting;
  if (TakeWord(&rest) != "meet" ||
      !Number(TakeWord(&rest), 1, 65535, &meeting.port) ||
      !Number<int64_t>(TakeWord(&rest), -1, std::numeric_limits<int64_t>::max(),
                       &meeting.done) ||
      !Time(TakeWord(&rest), &meeting.patience) ||
      !Time(TakeWord(&rest), &meeting.silence)) {
    return NoPacket(text);
  }
  meeting.build = TakeWord(&rest);
  if (meeting.build.empty() || meeting.build.size() > kMostBuild) {
    return NoPacket(text);
  }
  meeting.why = rest.substr(0, kMostWhy);
  return meeting;
}

Result<Assembly> ParseAssembly(std::string_view text) {
  std::string_view rest = text;
  Assembly assembly;
  if (TakeWord(&rest) != "go" ||
      !Number<uint32_t>(TakeWord(&rest), 1,
                        std::numeric_limits<uint32_t>::max(),
                        &assembly.epoch) ||
      !Number(TakeWord(&rest), 1, 65535, &assembly.port)) {
    return NoPacket(text);
  }
  assembly.address = TakeWord(&rest);
  if (assembly.address.empty() || assembly.address.size() > kMostAddress) {
    return NoPacket(text);
  }
  std::set<int> seats;
  while (true) {
    const size_t end = std::min(rest.find(','), rest.size());
    const std::string_view one = rest.substr(0, end);
    const size_t slash = std::min(one.find('/'), one.size());
    int seat = 0, host = 0;
    if (!Number(one.substr(0, slash), 0, kMostSeats - 1, &seat) ||
        !seats.insert(seat).second ||
        (slash < one.size() &&
         !Number(one.substr(slash + 1), 1, kMostSeats - 1, &host))) {
      return NoPacket(text);
    }
    assembly.seats.push_back(seat);
    assembly.hosts.push_back(host);
    if (end == rest.size()) return assembly;
    rest.remove_prefix(end + 1);
  }
}

void Roster::Started(int seat, RosterHost host) {
  Member member;
  member.host = std::move(host);
  if (Of(State::kMeets).empty()) waited_ = milliseconds(0);
  // Until it says its own: that of the others.
  for (const auto& [other, its] : members_) {
    member.meeting.patience =
        std::max(member.meeting.patience, its.meeting.patience);
  }
  if (members_.empty()) member.meeting.patience = patience_;
  members_[seat] = std::move(member);
}

void Roster::Heard(int seat) {
  const auto found = members_.find(seat);
  if (found != members_.end()) found->second.silent = milliseconds(0);
}

void Roster::Meets(int seat, Meeting meeting) {
  const auto found = members_.find(seat);
  if (found == members_.end()) return;
  Member& member = found->second;
  if (!member.was_in) others_ = true;
  for (const auto& [other, its] : members_) {
    if (member.was_in || !its.was_in || its.meeting.build == meeting.build) {
      continue;
    }
    member.differs = fmt::format("it is Sluice {}, the others are {}",
                                 meeting.build, its.meeting.build);
  }
  if (Of(State::kMeets).empty()) waited_ = milliseconds(0);
  if (member.state == State::kIn && !member.formed) apart_ = true;
  member.state = State::kMeets;
  member.meeting = std::move(meeting);
  member.silent = member.met = milliseconds(0);
}

void Roster::Formed(int seat) {
  const auto found = members_.find(seat);
  if (found != members_.end() && found->second.state == State::kIn) {
    found->second.formed = true;
  }
}

void Roster::Ended(int seat, bool well) {
  const auto found = members_.find(seat);
  if (found == members_.end()) return;
  ended_well_ = ended_well_ || (well && found->second.was_in);
  if (found->second.state == State::kIn && !found->second.formed) {
    apart_ = true;
  }
  members_.erase(found);
  others_ = true;
}

void Roster::Pass(milliseconds time) {
  for (auto& [seat, member] : members_) {
    member.silent += time;
    if (member.state == State::kMeets) member.met += time;
  }
  const bool meets = !Of(State::kMeets).empty();
  const bool waits = Of(State::kIn).empty() && !members_.empty();
  waited_ = waits ? waited_ + time : milliseconds(0);
  if (!waits || meets || verdict_ || ended_well_) return;
  // Those that are left have never come.
  milliseconds patience(1);
  for (const auto& [seat, member] : members_) {
    patience = std::max(patience, member.meeting.patience);
  }
  if (waited_ < patience) return;
  const std::vector<int> missing = Missing();
  verdict_ =
      fmt::format("{}{} {} not come in {:g} s (--join-timeout)",
                  epoch_ > 0 ? "no process is left, and " : "",
                  RankNames(missing), missing.size() == 1 ? "has" : "have",
                  std::chrono::duration<double>(waited_).count());
}

std::vector<int> Roster::Of(State state) const {
  std::vector<int> seats;
  for (const auto& [seat, member] : members_) {
    if (member.state == state) seats.push_back(seat);
  }
  return seats;
}

// Those that meet, for others that start.
bool Roster::Waited() const {
  milliseconds patience(0);
  for (const int seat : Of(State::kMeets)) {
    patience = std::max(patience, members_.at(seat).meeting.patience);
  }
  return waited_ >= patience;
}

bool Roster::AnyWasIn() const {
  return std::any_of(members_.begin(), members_.end(), [](const auto& one) {
    return one.second.state == State::kMeets && one.second.was_in;
  });
}

int Roster::FirstOf(const std::vector<int>& seats) const {
  const int before = group_.empty() ? -1 : group_[0];
  int first = seats[0];
  for (const int seat : seats) {
    const int64_t more = members_.at(seat).meeting.done;
    const int64_t most = members_.at(first).meeting.done;
    // Of several, who is rank 0 already.
    if (more > most || (more == most && seat == before)) first = seat;
  }
  return first;
}

std::optional<Roster::Begun> Roster::TakeGroup() {
  std::vector<int> here = Of(State::kMeets);
  for (const int late : Unneeded()) std::erase(here, late);
  if (verdict_ || here.empty() || !Of(State::kIn).empty()) {
    return std::nullopt;
  }
  const bool waits = !Of(State::kStarts).empty() && !winds_up_ && !Waited();
  // At first all begin together.
  if (waits && !AnyWasIn()) return std::nullopt;
  const bool enough = std::cmp_greater_equal(here.size(), least_);
  if (!enough && !winds_up_ && !ended_well_) {
    if (waits) return std::nullopt;
    verdict_ = fmt::format(
        "{} of at least {} processes {} left, and no other has come{}",
        here.size(), least_, here.size() == 1 ? "is" : "are",
        Of(State::kStarts).empty() ? "" : " in time");
    return std::nullopt;
  }
  const int first = FirstOf(here);
  const Meeting& leader = members_.at(first).meeting;
  in_vain_ = others_ || leader.done > done_ ? 0 : in_vain_ + 1;
  if (in_vain_ > kMostInVain) {
    verdict_ = fmt::format(
        "the same {} processes have come apart {} times without a step: {}",
        here.size(), in_vain_, leader.why);
    return std::nullopt;
  }
  return Begin(first, here);
}

Roster::Begun Roster::Begin(int first, const std::vector<int>& seats) {
  Begun begun;
  const Meeting& leader = members_.at(first).meeting;
  const RosterHost& home = members_.at(first).host;
  begun.done = leader.done;
  begun.assembly = {++epoch_, leader.port, seats, {}, home.address};
  std::vector<int>& ranks = begun.assembly.seats;
  const auto distance = [&](int seat) {
    const int host = members_.at(seat).host.number;
    return seat == first ? -2 : host == home.number ? -1 : host;
  };
  std::stable_sort(ranks.begin(), ranks.end(),
                   [&](int a, int b) { return distance(a) < distance(b); });
  for (const int seat : ranks) {
    begun.assembly.hosts.push_back(members_.at(seat).host.number);
  }
  for (auto& [seat, member] : members_) {
    if (member.state == State::kStarts) {
      member.meeting.patience = leader.patience;
    }
  }
  for (const int seat : seats) {
    Member& member = members_.at(seat);
    if (begun.why.empty()) begun.why = member.meeting.why;
    if (!member.was_in) begun.newcomers.push_back(seat);
    member.state = State::kIn;
    member.was_in = true;
    member.formed = false;
  }
  done_ = begun.done;
  others_ = false;
  group_ = begun.assembly.seats;
  called_ = apart_ = false;
  waited_ = milliseconds(0);
  return begun;
}

std::optional<int> Roster::TakeCall() {
  const auto zero = members_.find(group_.empty() ? -1 : group_[0]);
  const bool called = called_ || winds_up_ || ended_well_;
  if (called || zero == members_.end() || zero->second.state != State::kIn) {
    return std::nullopt;
  }
  // Of several that are started, as on a host that has come, one regroups none
  // before the others; one that hangs keeps it waiting for no longer.
  bool waits = false, impatient = Of(State::kStarts).empty();
  for (const auto& [seat, member] : members_) {
    if (member.state != State::kMeets || member.was_in) continue;
    if (!member.differs.empty()) continue;
    waits = true;
    impatient = impatient || member.met >= member.meeting.patience;
  }
  if (!waits || !impatient) return std::nullopt;
  called_ = true;
  return zero->first;
}

std::optional<int> Roster::TakeApart() {
  if (!std::exchange(apart_, false)) return std::nullopt;
  const auto zero = members_.find(group_[0]);
  if (zero == members_.end() || zero->second.state != State::kIn ||
      zero->second.formed) {
    return std::nullopt;  // it knows, or its group's coordinator does
  }
  return zero->first;
}

std::vector<int> Roster::Unneeded() const {
  std::vector<int> seats;
  const bool late = epoch_ > 0 && (ended_well_ || winds_up_);
  for (const auto& [seat, member] : members_) {
    if (!member.was_in && (late || !member.differs.empty())) {
      seats.push_back(seat);
    }
  }
  return seats;
}

std::string Roster::Differs(int seat) const {
  const auto found = members_.find(seat);
  return found == members_.end() ? "" : found->second.differs;
}

bool Roster::CameIn(int seat) const {
  const auto found = members_.find(seat);
  return found != members_.end() && found->second.was_in;
}

std::vector<int> Roster::Missing() const {
  return Of(State::kIn).empty() ? Of(State::kStarts) : std::vector<int>();
}

std::vector<int> Roster::Silent() const {
  if (verdict_ && Of(State::kMeets).empty()) return Of(State::kStarts);
  std::vector<int> silent;
  milliseconds others = milliseconds::max();
  for (const int seat : Of(State::kMeets)) {
    others = std::min(others, members_.at(seat).meeting.silence);
  }
  for (const auto& [seat, member] : members_) {
    if (member.state == State::kStarts) continue;
    const bool formed = member.state == State::kIn && member.formed;
    const milliseconds limit =
        formed ? others : std::min(others, member.meeting.silence);
    if (member.silent >= limit) silent.push_back(seat);
  }
  return silent;
}

}  // namespace sluice::dist
