#include "dist/servers/admission.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <numeric>

#include "dist/servers/pace.h"
#include "engine/runtime/subtrees.h"
#include "engine/text/json.h"
#include "engine/text/json_object.h"

namespace sluice::dist {
namespace {

// What a batch may have at most, so that products fit.
constexpr int64_t kMostRows = int64_t{1} << 40;

// JSON has no NaN, which a loss may be.
int64_t BitsOf(float value) {
  return std::bit_cast<int32_t>(value);
}
float OfBits(int64_t bits) {
  return std::bit_cast<float>(static_cast<int32_t>(bits));
}

// Names a field of the object it is in: "admit" tells these calls from others.
constexpr char kKindField[] = "admit";

}  // namespace

int64_t RowsOfShare(int64_t full_rows, int64_t whole_rows, int rank,
                    int workers) {
  const LeafRange mine = LeavesOf(full_rows, rank, workers);
  return std::min(mine.end, whole_rows) - std::min(mine.begin, whole_rows);
}

float DivisorOf(const std::vector<int64_t>& admitted, int64_t whole_rows) {
  const int64_t rows =
      std::accumulate(admitted.begin(), admitted.end(), int64_t{0});
  return static_cast<float>(static_cast<double>(rows) *
                            static_cast<double>(admitted.size()) /
                            static_cast<double>(whole_rows));
}

Admission::Admission(int workers, int64_t backups)
    : backups_(backups),
      admitted_(static_cast<size_t>(workers)),
      at_(static_cast<size_t>(workers)),
      dropped_(static_cast<size_t>(workers)) {}

Result<Admission::Answer> Admission::Ask(const Question& question) {
  if (question.rank < 0 || question.rank >= workers()) {
    return InvalidArgument(
        fmt::format("rank {} of {} workers", question.rank, workers()));
  }
  int64_t& at = at_[static_cast<size_t>(question.rank)];
  if (question.round < at || question.round > round_) {
    return InvalidArgument(
        fmt::format("rank {} asks for round {} after {}, the open one is {}",
                    question.rank, question.round, at, round_));
  }
  Result<Answer> answer = AnswerTo(question);
  if (!answer.ok()) return answer;
  at = question.round;
  Forget();
  return answer;
}

Result<Admission::Answer> Admission::AnswerTo(const Question& question) {
  const int64_t round = question.round;
  if (question.kind == Kind::kApplied) {
    if (round != round_ || applies_ != question.rank) {
      return InvalidArgument(
          fmt::format("rank {} has applied round {} without being told to",
                      question.rank, round));
    }
    Close();
  }
  if (round < round_) return Over(round);
  switch (question.kind) {
    case Kind::kBegin:
      return applies_ ? Waits() : Answer{Reply::kGo};
    case Kind::kOffer:
      return Admit(question);
    default:
      return Waits();
  }
}

Admission::Answer Admission::Waits() const {
  Answer answer{Reply::kWait};
  for (int rank = 0; rank < workers(); ++rank) {
    const bool contributed = admitted_[static_cast<size_t>(rank)].rows > 0;
    const bool empty = whole_rows_ > 0 && !HasRows(rank);
    if (applies_ ? rank == *applies_ : !contributed && !empty) {
      answer.awaited.push_back(rank);
    }
  }
  return answer;
}

// Whether a worker has the rows that it offers, of as many as others say.
bool Admission::Has(const Question& offer) const {
  return offer.rows > 0 && offer.whole_rows <= offer.full_rows &&
         offer.full_rows <= kMostRows &&
         RowsOfShare(offer.full_rows, offer.whole_rows, offer.rank,
                     workers()) == offer.rows &&
         (whole_rows_ == 0 || whole_rows_ == offer.whole_rows);
}

// Of the open round, once somebody has offered something.
bool Admission::HasRows(int rank) const {
  return RowsOfShare(full_rows_, whole_rows_, rank, workers()) > 0;
}

Result<Admission::Answer> Admission::Admit(const Question& offer) {
  Contribution& mine = admitted_[static_cast<size_t>(offer.rank)];
  if (!Has(offer) || mine.rows > 0) {
    return InvalidArgument(
        fmt::format("rank {} of {} offers {} of {} examples in round {}{}",
                    offer.rank, workers(), offer.rows, offer.whole_rows,
                    offer.round, mine.rows > 0 ? ", once more" : ""));
  }
  if (applies_) return Waits();
  mine = {offer.rows, offer.loss};
  full_rows_ = whole_rows_ == 0 ? offer.full_rows
                                : std::min(full_rows_, offer.full_rows);
  whole_rows_ = offer.whole_rows;
  rate_ = offer.rate;
  ++count_;
  int64_t with_rows = 0;
  for (int rank = 0; rank < workers(); ++rank) with_rows += HasRows(rank);
  if (count_ < std::min(workers() - backups_, with_rows)) return Waits();
  applies_ = offer.rank;
  Answer answer{Reply::kApply};
  for (const Contribution& each : admitted_) {
    answer.admitted.push_back(each.rows);
  }
  return answer;
}

Admission::Answer Admission::Over(int64_t round) const {
  const Past& past = past_[past_.size() - static_cast<size_t>(round_ - round)];
  return {Reply::kOver, {}, past.loss, past.rate, rows_, dropped_};
}

// What nobody asks for any more.
void Admission::Forget() {
  const int64_t slowest = *std::min_element(at_.begin(), at_.end());
  while (round_ - static_cast<int64_t>(past_.size()) < slowest) {
    past_.pop_front();
  }
}

void Admission::Close() {
  float sum = 0;
  std::vector<int64_t> rows;
  for (int rank = 0; rank < workers(); ++rank) {
    const auto i = static_cast<size_t>(rank);
    const Contribution& each = admitted_[i];
    rows.push_back(each.rows);
    rows_ += each.rows;
    // In the order of workers, as gradients.
    if (each.rows > 0) sum += each.loss;
    if (HasRows(rank) && each.rows == 0) ++dropped_[i];
  }
  past_.push_back({sum / DivisorOf(rows, whole_rows_), rate_});
  std::fill(admitted_.begin(), admitted_.end(), Contribution{});
  whole_rows_ = 0;
  count_ = 0;
  applies_.reset();
  ++round_;
}

bool IsAdmissionCall(std::string_view text) {
  const auto json = JsonObject::Parse(text);
  return json.ok() && json->Has(kKindField);
}

std::string TextOf(const AdmissionCall& call) {
  const Admission::Question& question = call.question;
  return Json{{kKindField, static_cast<int64_t>(question.kind)},
              {"era", call.era},
              {"workers", call.workers},
              {"backups", call.backups},
              {"rank", question.rank},
              {"round", question.round},
              {"rows", question.rows},
              {"whole_rows", question.whole_rows},
              {"full_rows", question.full_rows},
              {"loss", BitsOf(question.loss)},
              {"rate", BitsOf(question.rate)}}
      .Text();
}

Result<AdmissionCall> ParseAdmissionCall(std::string_view text) {
  SLUICE_ASSIGN_OR_RETURN(const JsonObject json, JsonObject::Parse(text));
  AdmissionCall call;
  Admission::Question& question = call.question;
  SLUICE_ASSIGN_OR_RETURN(const int64_t kind, json.Int(kKindField));
  SLUICE_ASSIGN_OR_RETURN(call.era, json.Int("era"));
  SLUICE_ASSIGN_OR_RETURN(const int64_t workers, json.Int("workers"));
  SLUICE_ASSIGN_OR_RETURN(call.backups, json.Int("backups"));
  SLUICE_ASSIGN_OR_RETURN(const int64_t rank, json.Int("rank"));
  SLUICE_ASSIGN_OR_RETURN(question.round, json.Int("round"));
  SLUICE_ASSIGN_OR_RETURN(question.rows, json.Int("rows"));
  SLUICE_ASSIGN_OR_RETURN(question.whole_rows, json.Int("whole_rows"));
  SLUICE_ASSIGN_OR_RETURN(question.full_rows, json.Int("full_rows"));
  SLUICE_ASSIGN_OR_RETURN(const int64_t loss, json.Int("loss"));
  SLUICE_ASSIGN_OR_RETURN(const int64_t rate, json.Int("rate"));
  if (workers < 1 || workers > kMostWorkers || call.backups < 0 ||
      call.backups >= workers || rank < 0 || rank >= workers ||
      question.round < 0 || question.rows < 0 || question.whole_rows < 0 ||
      question.full_rows < 0 || kind < 0 ||
      kind > static_cast<int64_t>(Admission::Kind::kAwait)) {
    return InvalidArgument(
        "a question about contributions that makes no "
        "sense");
  }
  call.workers = static_cast<int>(workers);
  question.kind = static_cast<Admission::Kind>(kind);
  question.rank = static_cast<int>(rank);
  question.loss = OfBits(loss);
  question.rate = OfBits(rate);
  return call;
}

std::string TextOf(const Admission::Answer& answer) {
  Json json = {{"reply", static_cast<int64_t>(answer.reply)}};
  if (answer.reply == Admission::Reply::kWait) {
    json["awaited"] = answer.awaited;
  }
  if (answer.reply == Admission::Reply::kApply) {
    json["admitted"] = answer.admitted;
  }
  if (answer.reply == Admission::Reply::kOver) {
    json["loss"] = BitsOf(answer.loss);
    json["rate"] = BitsOf(answer.rate);
    json["rows"] = answer.rows;
    json["dropped"] = answer.dropped;
  }
  return json.Text();
}

Result<Admission::Answer> ParseAdmissionAnswer(std::string_view text) {
  SLUICE_ASSIGN_OR_RETURN(const JsonObject json, JsonObject::Parse(text));
  Admission::Answer answer;
  SLUICE_ASSIGN_OR_RETURN(const int64_t reply, json.Int("reply"));
  if (reply < 0 || reply > static_cast<int64_t>(Admission::Reply::kOver)) {
    return DataLoss("a server answers nonsense about contributions");
  }
  answer.reply = static_cast<Admission::Reply>(reply);
  if (answer.reply == Admission::Reply::kWait) {
    SLUICE_ASSIGN_OR_RETURN(answer.awaited, json.Ints("awaited"));
  }
  if (answer.reply == Admission::Reply::kApply) {
    SLUICE_ASSIGN_OR_RETURN(answer.admitted, json.Ints("admitted"));
  }
  if (answer.reply != Admission::Reply::kOver) return answer;
  SLUICE_ASSIGN_OR_RETURN(const int64_t loss, json.Int("loss"));
  SLUICE_ASSIGN_OR_RETURN(const int64_t rate, json.Int("rate"));
  SLUICE_ASSIGN_OR_RETURN(answer.rows, json.Int("rows"));
  SLUICE_ASSIGN_OR_RETURN(answer.dropped, json.Ints("dropped"));
  answer.loss = OfBits(loss);
  answer.rate = OfBits(rate);
  return answer;
}

}  // namespace sluice::dist
