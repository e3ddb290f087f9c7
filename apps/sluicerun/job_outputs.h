// The outputs of a job's processes: the launcher's own stdout and stderr, or
// files.
#ifndef SLUICE_APPS_SLUICERUN_JOB_OUTPUTS_H_
#define SLUICE_APPS_SLUICERUN_JOB_OUTPUTS_H_

#include <memory>
#include <string>
#include <vector>

#include "apps/sluicerun/job.h"
#include "apps/sluicerun/output.h"
#include "dist/net/descriptor.h"

namespace sluice::launcher {

// The outputs for all runs of a job. The sinks do not move.
class JobOutputs {
 public:
  // `options` outlive this. Throws Error where a file cannot be written.
  explicit JobOutputs(const JobOptions& options);

  Stream OfRank(int rank, dist::Descriptor pipe, bool is_error, Tail* tail);
  Stream OfServer(int server, dist::Descriptor pipe, bool is_error, Tail* tail);

  const std::vector<std::unique_ptr<Sink>>& sinks() const { return sinks_; }

 private:
  // The `i`th process, called so.
  Stream Of(int i, const std::string& name, dist::Descriptor pipe,
            bool is_error, Tail* tail);
  void Add(int descriptor, std::string name);
  void OpenFile(const std::string& name);

  const JobOptions& options_;
  std::vector<dist::Descriptor> files_;
  std::vector<std::unique_ptr<Sink>> sinks_;
};

}  // namespace sluice::launcher

#endif  // SLUICE_APPS_SLUICERUN_JOB_OUTPUTS_H_
