#include "models/train/run/backup_steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "dist/membership/rank_name.h"
#include "models/optim/contributions.h"
#include "models/train/run/inference.h"

namespace sluice {

using dist::Admission;

BackupSteps::BackupSteps(const Graph& graph, Session& session,
                         const Workers& workers, const TrainingServers& servers,
                         const Operation& train, int64_t batch_size)
    : session_(session),
      workers_(workers),
      servers_(servers),
      batch_size_(batch_size) {
  std::vector<FeedShape> feeds;
  for (const Output& fed : {AdmittedWorkers(graph), AdmittedWeight(graph)}) {
    feeds.push_back({fed, fed.shape()});
    feeds_.push_back(Tensor::Zeros(fed.dtype(), fed.shape()));
  }
  update_ = session.Prepare(feeds, {}, {train});
}

void BackupSteps::Begin(int64_t era) {
  era_ = era;
  round_ = 0;
}

BackupSteps::Done BackupSteps::Run(int64_t step, BatchStep& gradients,
                                   const Example& share, double weight) {
  Done done;
  const int64_t rows = RowsOf(share);
  session_.set_step(static_cast<uint64_t>(step));
  if (rows > 0 &&
      Ask({.kind = Admission::Kind::kBegin}).reply == Admission::Reply::kGo) {
    last_ = gradients.Start(share);
    done.values = last_.Wait();
    // As it is weighted in the graph.
    const float loss =
        static_cast<float>(done.values[0].At(0)) * static_cast<float>(weight);
    const Admission::Answer offered =
        Ask({.kind = Admission::Kind::kOffer,
             .rows = rows,
             .whole_rows = WholeRowsOf(share),
             .loss = loss,
             .rate = static_cast<float>(done.values[1].At(0)),
             .full_rows = FullRowsOf(share)});
    if (offered.reply == Admission::Reply::kApply) {
      session_.set_step(static_cast<uint64_t>(step));
      Apply(offered.admitted, WholeRowsOf(share));
      Ask({.kind = Admission::Kind::kApplied});
    }
  }
  done.over = Ask({.kind = Admission::Kind::kAwait});
  ++round_;
  return done;
}

// What is no share of such a batch is of one that is full with fewer examples,
// as where these depend on a bucket.
int64_t BackupSteps::FullRowsOf(const Example& share) const {
  const int64_t whole = WholeRowsOf(share);
  const int64_t rows =
      dist::RowsOfShare(batch_size_, whole, workers_.rank(), workers_.size());
  return rows == RowsOf(share) ? batch_size_ : whole;
}

// What an offer is answered is not waited for: kAwait does that.
Admission::Answer BackupSteps::Ask(Admission::Question question) {
  const auto begin = std::chrono::steady_clock::now();
  question.rank = workers_.rank();
  question.round = round_;
  const bool again = question.kind != Admission::Kind::kOffer;
  Admission::Answer answer;
  AskFirstServer(workers_, servers_,
                 dist::TextOf(dist::AdmissionCall{era_, workers_.size(),
                                                  *servers_.backups, question}),
                 [&](const std::string& said) -> std::optional<std::string> {
                   answer = dist::ParseAdmissionAnswer(said).ValueOrThrow();
                   if (!again || answer.reply != Admission::Reply::kWait) {
                     return std::nullopt;
                   }
                   return WaitsFor(answer.awaited);
                 });
  waited_ +=
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin)
          .count();
  return answer;
}

// The first of those that nobody waits for says it.
std::string BackupSteps::WaitsFor(const std::vector<int64_t>& awaited) const {
  int64_t first = 0;
  while (std::count(awaited.begin(), awaited.end(), first) > 0) ++first;
  if (first != workers_.rank()) return "";
  return fmt::format("{} has waited for {} to end the step",
                     workers_.Name(workers_.rank()), dist::RankNames(awaited));
}

void BackupSteps::Apply(const std::vector<int64_t>& admitted,
                        int64_t whole_rows) {
  for (size_t rank = 0; rank < admitted.size(); ++rank) {
    feeds_[0].data<float>()[rank] = admitted[rank] > 0 ? 1 : 0;
  }
  *feeds_[1].data<float>() = dist::DivisorOf(admitted, whole_rows);
  update_.Run(feeds_, {});
}

}  // namespace sluice
