// The record of how a training was started, kept in its folder, so that later
// commands on the training need not be given the same flags again.
//
//   run.json := {"format": "sluice.run", "version": 1, "program": NAME,
//                "sluice": VERSION, "model": NAME,
//                "workers": N, "devices": N, "nodes": N, "since": STEP,
//                "job": NAME, "higher_is_better": true,
//                "flags": {NAME: VALUE as text, ...},
//                "flag_bytes": {NAME: VALUE's bytes in hexadecimal, ...},
//                "class_names": [NAME, ...],
//                "ended": true}
//
// It is trained by so many processes, which have so many devices together, on
// so many hosts, after step `since`: before, they may have been others. Whether
// a higher value is better is of the first metric, as the program says.
//
// It has ended when all its steps are done or it was stopped early, and not
// when it was interrupted; false: it had, and another was about to begin. What
// JSON cannot hold of a flag, a path that is no UTF-8, is among the bytes, too,
// which count. The names of the classes are for people and other
// programs: checkpoints have their own.
#ifndef SLUICE_MODELS_CLI_RUN_RECORD_H_
#define SLUICE_MODELS_CLI_RUN_RECORD_H_

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "models/train/hooks/hook.h"

namespace sluice {

// Values of flags by name without "--".
using FlagValues = std::map<std::string, std::string>;

struct RunRecord {
  std::string program;
  std::string version;  // of Sluice
  std::string model;    // for people
  FlagValues flags;
  int64_t workers = 1, devices = 1;  // processes, and devices of all of them
  int64_t nodes = 1;                 // hosts that train it
  // The step after which it is trained by these; nullopt: not known.
  std::optional<int64_t> since = std::nullopt;
  std::string job;  // dist::JobName() where it began or went on last
  bool higher_is_better = true;  // written, not read
  std::optional<bool> ended = std::nullopt;
};

// The record whose text, read from `path`, is given. Throws Error, naming the
// path: kDataLoss for a text that is no record.
RunRecord ParseRunRecord(const std::string& text, const std::string& path);

// Reads the record in a folder; nullopt if there is none. Throws Error, naming
// the file: kDataLoss for one that is no record.
std::optional<RunRecord> ReadRunRecord(const std::string& log_dir);

// Whether the training in the folder goes on from a checkpoint: what is in that
// comes before weights to begin with. Throws Error.
bool HasCheckpoint(const std::string& log_dir);

// Whether the job (dist::JobName) has begun the training in the folder, or gone
// on with it, and nobody since. False where there is no record, or none that
// can be read.
bool IsTrainingOf(const std::string& job, const std::string& log_dir);

// Writes that the training in the folder has ended, into its record; or that it
// is gone on with, or another is about to take its place, which may be long
// before RecordRun; whether it had ended. Throw Error.
void NoteEnd(const std::string& log_dir);
bool NoteBegin(const std::string& log_dir);
// Undoes a NoteBegin that no RecordRun has followed, as far as possible.
void NoteNotBegun(const std::string& log_dir) noexcept;
// Whether the record says that the training has ended. False if there is no
// record, or none that can be read.
bool HasEnded(const std::string& log_dir);

// Waits until there is a training in the folder, with a record or a checkpoint,
// or a signal, which is noted from now on (models/cli/interrupt.h). Throws
// Error, as ReadRunRecord.
void AwaitTraining(const std::string& log_dir);

// Writes the record of a training once it has the folder and has begun, with
// what was `found` until then in the place of its flags
// (RunContext::found_flags). Of one that goes on from a checkpoint it keeps the
// weights that it began with.
class RecordRun : public Hook {
 public:
  // `nodes` are those that train it, each time that it begins; `restart`:
  // whether what is in the folder is set aside.
  RecordRun(RunRecord record, std::function<int64_t()> nodes,
            std::shared_ptr<const FlagValues> found, bool restart)
      : record_(std::move(record)),
        nodes_(std::move(nodes)),
        found_(std::move(found)),
        restart_(restart) {}
  void Begin(TrainingRun& run) override;

 private:
  RunRecord record_;
  const std::function<int64_t()> nodes_;
  std::shared_ptr<const FlagValues> found_;
  bool restart_;
};

}  // namespace sluice

#endif  // SLUICE_MODELS_CLI_RUN_RECORD_H_
