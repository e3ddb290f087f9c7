// Training's scalars as a table, <log_dir>/scalars.csv, for spreadsheets,
// pandas and reports (models/report): RFC 4180 with a heading,
//
//   seconds,step,set,name,value
//   1.25,100,train,loss,0.30481
//
// seconds of training in all, resumed parts too; set is "train" or "eval", as
// the folders of TensorBoard's events are. A number is written with as many
// digits as tell it from every other double; "nan", "inf" and "-inf" are
// values. Rows end in LF.
#ifndef SLUICE_MODELS_TRAIN_HOOKS_SCALAR_LOG_H_
#define SLUICE_MODELS_TRAIN_HOOKS_SCALAR_LOG_H_

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/status.h"
#include "engine/visibility.h"
#include "io/files/file.h"

namespace SLUICE_INTERNAL sluice {

struct ScalarRow {
  double seconds = 0;  // finite
  int64_t step = 0;
  std::string set, name;
  double value = 0;
};

// Reads the rows in the order of the file. Skips an unfinished last line, as a
// killed process leaves. kNotFound without a file; kDataLoss, naming the line,
// for text in another format.
Result<std::vector<ScalarRow>> ReadScalars(
    const std::string& log_dir, FileSystem& files = FileSystem::Default());

// Appends to that file. One thread at a time. Rows are buffered until Flush,
// and lost without it. Once writing has failed every call returns that error.
class ScalarLog {
 public:
  // Begins the file, in the place of an earlier one, for a training that begins
  // anew (`fresh`). For one that is resumed at `step` keeps the rows up to that
  // step: what was written beyond it is trained, and written, again. A file
  // that is damaged is set aside, which is no error but a warning(). Creates
  // the folder.
  static Result<std::unique_ptr<ScalarLog>> Open(
      const std::string& log_dir, int64_t step, bool fresh,
      FileSystem& files = FileSystem::Default());

  // Adds a row, unless the file has that figure for the step that training
  // resumes at, whose evaluation may be done twice. kInvalidArgument for NUL in
  // a text, which CSV cannot hold, and for seconds that are not finite.
  Status Add(const ScalarRow& row);
  // Hands the rows to the operating system: they survive the end of the
  // process, not the loss of power.
  Status Flush();
  // Flushes, and makes the rows survive a loss of power, too.
  Status Sync();

  // The seconds of the last row that was kept; 0: none was.
  double seconds() const { return seconds_; }
  // What was damaged and where it is now; "": nothing.
  const std::string& warning() const { return warning_; }

 private:
  ScalarLog() = default;
  // The rows of the file up to step_, as they are written.
  Result<std::string> Keep(const std::string& path, FileSystem& files);

  int64_t step_ = 0;  // that training resumes at
  // Set and name of the rows kept of that step.
  std::set<std::pair<std::string, std::string>> kept_of_step_;
  double seconds_ = 0;
  std::string warning_;
  std::unique_ptr<WritableFile> file_;
  std::string pending_;
  Status error_;  // of the last of them; half a row may be in the file
};

}  // namespace sluice

#endif  // SLUICE_MODELS_TRAIN_HOOKS_SCALAR_LOG_H_
