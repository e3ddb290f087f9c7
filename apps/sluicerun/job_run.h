// One run of a job, which may begin again as another.
#ifndef SLUICE_APPS_SLUICERUN_JOB_RUN_H_
#define SLUICE_APPS_SLUICERUN_JOB_RUN_H_

#include <sys/resource.h>

#include "apps/sluicerun/job.h"
#include "apps/sluicerun/job_outputs.h"
#include "apps/sluicerun/signals.h"

namespace sluice::launcher {

struct JobEnd {
  int code = 0;  // RunJob's
  bool may_begin_again = false;
};

// Runs a job from the first start to the last end. `open_files` is the
// processes' limit; `restarts`: how many there have been, those of one process
// alone too. Throws Error where it cannot begin.
JobEnd RunOnce(const JobOptions& options, JobOutputs& outputs,
               SignalQueue& signals, rlimit open_files, int* restarts);

}  // namespace sluice::launcher

#endif  // SLUICE_APPS_SLUICERUN_JOB_RUN_H_
