#include <fmt/format.h>

#include <string>

#include "apps/sluicerun/emit.h"
#include "apps/sluicerun/remote.h"
#include "engine/ceil_div.h"
#include "engine/status.h"

namespace sluice::launcher {
namespace {

// Of a step with parameter servers: what each task of srun's does first, with
// their number and the program's words. The tasks of a node are next to each
// other in the cluster, whichever order Slurm numbers them in, so that all come
// to the same one. Ports are those of the user's SLUICE_FIRST_PORT or chosen as
// in dist/other_launchers.cc, a node's follow one another. What Slurm says of a
// rank is taken away: it is another.
constexpr char kTask[] =
    R"(# A task as one of the cluster: a node's last ones are parameter servers,
# which are dealt to the nodes in turn, the others workers.
task() {
  set -eu
  local servers=$1 names cluster nodes some times node i port kind own
  local -a tasks workers
  local -A count=([worker]=0 [ps]=0) at=([worker]='' [ps]='')
  shift
  names=$(scontrol show hostnames "$SLURM_STEP_NODELIST")
  mapfile -t nodes <<<"$names"
  for some in ${SLURM_STEP_TASKS_PER_NODE//,/ }; do # such as 2(x3),1
    times=1
    [[ $some != *x* ]] || times=${some#*x} times=${times%?}
    for ((; times > 0; --times)); do tasks+=("${some%%[!0-9]*}"); done
  done
  workers=("${tasks[@]}")
  for ((node = 0; servers > 0; node = (node + 1) % ${#nodes[@]})); do
    ((workers[node] > 0)) || continue
    workers[node]=$((workers[node] - 1))
    servers=$((servers - 1))
  done
  for node in "${!nodes[@]}"; do
    for ((i = 0; i < tasks[node]; ++i)); do
      kind=worker
      ((i < workers[node])) || kind='ps'
      if ((node == SLURM_NODEID && i == SLURM_LOCALID)); then
        own="{\"type\":\"$kind\",\"index\":${count[$kind]}}"
      fi
      port=$((20000 + (SLURM_JOB_ID * 31 + SLURM_STEP_ID + i) % 10000))
      [[ ! -v SLUICE_FIRST_PORT ]] || port=$((SLUICE_FIRST_PORT + i))
      at[$kind]+="${at[$kind]:+,}\"${nodes[node]}:$port\""
      count[$kind]=$((count[$kind] + 1))
    done
  done
  cluster="\"worker\":[${at[worker]}],\"ps\":[${at[ps]}]"
  export SLUICE_CONFIG="{\"cluster\":{$cluster},\"task\":$own}"
  unset SLURM_STEP_ID
  exec "$@"
}
)";

// Memory is asked for by the CPU: Slurm knows none of a task.
std::string Resources(const EmitOptions& options) {
  std::string lines;
  if (options.cpus > 0) {
    lines += fmt::format("#SBATCH --cpus-per-task={}\n", options.cpus);
  }
  if (options.memory > 0) {
    const int cpus = options.cpus > 0 ? options.cpus : 1;
    lines += fmt::format("#SBATCH --mem-per-cpu={}M\n",
                         CeilDiv(options.memory * 1024, cpus));
  }
  if (options.gpus > 0) {
    lines += fmt::format("#SBATCH --gpus-per-task={}\n", options.gpus);
  }
  return lines;
}

std::string Secrets(const EmitOptions& options, const JobOptions& job) {
  if (!job.certificates.empty()) {
    return fmt::format("export SLUICE_CERTIFICATES={}\n",
                       Quoted(job.certificates));
  }
  std::string lines;
  if (job.allow_plaintext) lines += "export SLUICE_ALLOW_PLAINTEXT=1\n";
  if (job.allow_plaintext && !IsSeveral(job)) return lines;
  lines +=
      "# What the processes know each other by, where every node finds it.\n"
      "folder=$(mktemp -d \"$PWD/.sluice-secrets-XXXXXX\")\n"
      "trap 'rm -rf \"$folder\"' EXIT\n";
  if (job.allow_plaintext) {
    return lines +
           "(umask 077; od -An -v -N32 -tx1 /dev/urandom | tr -d ' \\n' "
           ">\"$folder/token\")\n"
           "export SLUICE_TOKEN_FILE=$folder/token\n";
  }
  const std::string servers =
      job.servers == 0 ? "" : fmt::format(" --ps {}", job.servers);
  return lines +
         fmt::format(
             "{} -n {}{} --make-certificates \"$folder\" --valid-days {}\n"
             "export SLUICE_CERTIFICATES=$folder\n",
             Quoted(job.ssh.program), job.size, servers, options.days);
}

}  // namespace

std::string SlurmScript(const EmitOptions& options, const JobOptions& job) {
  const std::string name = NameOf(options, job);
  // Slurm reads its lines in ways of its own.
  if (Quoted(name) != name) {
    throw Error(Code::kInvalidArgument,
                fmt::format("--job-name: '{}' is more than letters, digits and "
                            "'_-+=./:,@%'",
                            name));
  }
  const int tasks = job.size + job.servers;
  std::string script = fmt::format(
      "#!/bin/bash\n"
      "#SBATCH --job-name={}\n"
      "#SBATCH --ntasks={}\n"
      "#SBATCH --open-mode=append\n",
      name, tasks);
  script += Resources(options) + "set -eu\n";
  script += Secrets(options, job);
  if (job.port != 0) {
    script += fmt::format("export SLUICE_FIRST_PORT={}\n", job.port);
  }
  std::string step = "srun --kill-on-bad-exit=1";
  if (options.cpus > 0) {  // which steps do not take from the job
    step += fmt::format(" --cpus-per-task={}", options.cpus);
  }
  // Else --gpus-per-task has each task see its own alone, as /gpu:0, where
  // --device /gpu takes that of its number on the node.
  if (options.gpus > 0) step += " --gpu-bind=none";
  if (job.servers > 0) {
    script += kTask;
    step += fmt::format(
        " --ntasks={} bash -c \"$(declare -f task); task \\\"\\$@\\\"\" task "
        "{}",
        tasks, job.servers);
  }
  for (const std::string& word : job.command) step += " " + Quoted(word);
  script += fmt::format(
      "# The same after a requeue: a --restart is for the first start alone.\n"
      "export SLUICE_JOB=slurm-$SLURM_JOB_ID\n"
      "for restart in $(seq 0 {}); do\n"
      "  code=0\n"
      "  {} || code=$?\n"
      "  # Wrong usage, or no such program: nothing would be new.\n"
      "  case $code in 0 | 2 | 126 | 127) break ;; esac\n"
      "done\n"
      "exit $code\n",
      job.max_restarts, step);
  return script;
}

}  // namespace sluice::launcher
