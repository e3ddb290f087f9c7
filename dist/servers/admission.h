// Decides which workers' gradients a step on parameter servers is made of,
// where it does not wait for all workers (Chen et al., 2016, "Revisiting
// Distributed Synchronous SGD").
#ifndef SLUICE_DIST_SERVERS_ADMISSION_H_
#define SLUICE_DIST_SERVERS_ADMISSION_H_

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/status.h"
#include "engine/visibility.h"

namespace SLUICE_INTERNAL sluice {
namespace dist {

// Rounds have numbers from 0 on; one is open at a time. A worker begins the
// open round, computes, offers what it has, of which the first that come are
// admitted, and waits until the round is over. The last that is admitted is
// told to apply what was, and says when that is done, which ends the round and
// opens the next. All others' contributions are dropped. Not thread-safe.
//
// A worker that comes too late goes through the rounds that it missed without
// computing: so all have their inputs at the same place when they meet.
class Admission {
 public:
  // A round is made of the contributions of `workers - backups` workers, 1 or
  // more; or of those that have examples in it, where these are fewer.
  Admission(int workers, int64_t backups);

  enum class Kind { kBegin, kOffer, kApplied, kAwait };
  struct Question {
    Kind kind = Kind::kBegin;
    int rank = 0;
    int64_t round = 0;
    // With kOffer: `rows` of the round's `whole_rows` examples are this
    // worker's, as RowsOfShare has it of `full_rows`, which are at least as
    // many.
    int64_t rows = 0, whole_rows = 0;
    // The mean loss over these rows, times their weight: their number over the
    // mean number per worker.
    float loss = 0;
    float rate = 0;  // the learning rate
    int64_t full_rows = 0;
  };

  enum class Reply {
    kGo,     // compute
    kWait,   // and ask again; after kOffer and kApplied: by kAwait
    kApply,  // now, then say so
    kOver,   // the round is
  };
  struct Answer {
    Reply reply = Reply::kWait;
    // With kApply: the rows of each worker that is admitted; 0: it is not.
    std::vector<int64_t> admitted = {};
    // With kOver: the round's loss, the mean over the examples that were
    // admitted, and rate; over all rounds that have ended by now, the number of
    // examples that were admitted, and of each worker's contributions that were
    // not.
    float loss = 0, rate = 0;
    int64_t rows = 0;
    std::vector<int64_t> dropped = {};
    // With kWait: the ranks that are waited for, to contribute or, if that is
    // one that has contributed, to apply.
    std::vector<int64_t> awaited = {};
  };
  // kInvalidArgument for a question that makes no sense, which changes nothing.
  Result<Answer> Ask(const Question& question);

 private:
  struct Contribution {
    int64_t rows = 0;
    float loss = 0;
  };
  int workers() const { return static_cast<int>(admitted_.size()); }
  Result<Answer> AnswerTo(const Question& question);
  bool Has(const Question& offer) const;
  bool HasRows(int rank) const;
  Answer Waits() const;
  Result<Answer> Admit(const Question& offer);
  Answer Over(int64_t round) const;
  void Forget();
  void Close();

  const int64_t backups_;
  int64_t round_ = 0;
  // The state of the open round.
  std::vector<Contribution> admitted_;  // by rank; no rows: not admitted
  int64_t whole_rows_ = 0;              // 0: nobody has offered anything
  int64_t full_rows_ = 0;               // the least that anybody said
  int64_t count_ = 0;                   // of those admitted
  std::optional<int> applies_;          // rank; whoever is late from then on
  float rate_ = 0;
  // The rounds that are over, from the one that the slowest worker is at.
  struct Past {
    float loss = 0, rate = 0;
  };
  std::deque<Past> past_;
  std::vector<int64_t> at_;  // the round of each worker's last question
  int64_t rows_ = 0;
  std::vector<int64_t> dropped_;
};

// How many of a batch's `whole_rows` examples a worker has: a batch is cut
// where one of `full_rows` would be, so that of a shorter batch the last
// workers may have none (Dataset::Share).
int64_t RowsOfShare(int64_t full_rows, int64_t whole_rows, int rank,
                    int workers);

// The divisor that makes the sum of weighted values of the admitted rows their
// mean: the sum of the weights, each worker's rows over the mean number of
// them.
float DivisorOf(const std::vector<int64_t>& admitted, int64_t whole_rows);

// A question as it is put to a server, like PaceCall.
struct AdmissionCall {
  int64_t era = 0;
  int workers = 0;
  int64_t backups = 0;
  Admission::Question question;
};
// Whether the text of a call is an AdmissionCall.
bool IsAdmissionCall(std::string_view text);
std::string TextOf(const AdmissionCall& call);
Result<AdmissionCall> ParseAdmissionCall(std::string_view text);
std::string TextOf(const Admission::Answer& answer);
Result<Admission::Answer> ParseAdmissionAnswer(std::string_view text);

}  // namespace dist
}  // namespace sluice

#endif  // SLUICE_DIST_SERVERS_ADMISSION_H_
