// What the trainer tells a person, and how it learns that it shall end: who
// runs it says where to and from what. models/cli has the terminal and the
// signals.
#ifndef SLUICE_MODELS_TRAIN_WORKERS_REPORTER_H_
#define SLUICE_MODELS_TRAIN_WORKERS_REPORTER_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "engine/visibility.h"

namespace SLUICE_PUBLIC sluice {

// Hears what happens beside the results: where training resumes from, which
// file is used, what could not be read or written. Called by the thread that
// trains.
class Reporter {
 public:
  virtual ~Reporter() = default;
  // One line, without its end.
  virtual void Note(std::string_view line) = 0;
  // The same of any worker, also where rank 0 alone speaks to people.
  virtual void NoteOfAny(std::string_view line) { Note(line); }
  // How many examples of an evaluation are done, of how many (negative: nobody
  // knows yet). Called after each batch; who shows it chooses how often.
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
