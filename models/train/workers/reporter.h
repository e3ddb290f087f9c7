// Interfaces through which the trainer reports to a person and is asked to end;
// its caller implements them. models/cli does so with the terminal and signals.
#ifndef SLUICE_MODELS_TRAIN_WORKERS_REPORTER_H_
#define SLUICE_MODELS_TRAIN_WORKERS_REPORTER_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "engine/visibility.h"

namespace SLUICE_PUBLIC sluice {

// Gets messages beside the results: where training resumes from, which file is
// used, what could not be read or written. Called by the thread that trains.
class Reporter {
 public:
  virtual ~Reporter() = default;
  // Reports one line, without a line end.
  virtual void Note(std::string_view line) = 0;
  // Note for any worker, also if only rank 0 reports to people.
  virtual void NoteOfAny(std::string_view line) { Note(line); }
  // Reports how many examples of an evaluation are done, of how many (negative:
  // not known yet). Called after each batch; the reporter chooses how often to
  // show it.
  virtual void Evaluating(int64_t /*done*/, int64_t /*all*/) {}
};

// Is asked between steps, and between batches of an evaluation or prediction,
// whether to end; what was trained is then saved.
class StopToken {
 public:
  virtual ~StopToken() = default;
  // Why, such as "SIGINT was received"; empty: go on. Once it is not empty it
  // stays so. Called by the thread that trains.
  virtual std::string Reason() const = 0;
};

}  // namespace sluice

#endif  // SLUICE_MODELS_TRAIN_WORKERS_REPORTER_H_
