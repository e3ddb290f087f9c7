// A job as a description for others that start it: a batch script for Slurm, a
// manifest for Kubernetes.
#ifndef SLUICE_APPS_SLUICERUN_EMIT_H_
#define SLUICE_APPS_SLUICERUN_EMIT_H_

#include <string>
#include <vector>

#include "apps/sluicerun/job.h"

namespace sluice::launcher {

struct EmitOptions {
  std::string form;  // "slurm" or "kubernetes"; empty: none is asked for
  std::string name;  // of the job; empty: the program's
  // For Kubernetes: the container's image, and volumes of its own as
  // "CLAIM:/PATH" (persistentVolumeClaim).
  std::string image;
  std::vector<std::string> claims;
  int days = 30;  // that certificates are valid
  // The resources that each process asks for; 0: what the cluster gives. GPUs
  // are NVIDIA's; with Kubernetes only workers get any.
  int cpus = 0, gpus = 0;
  int memory = 0;  // GiB
};

// The job's name there: "resnet50" for "build/release/bin/resnet50", unless
// `options.name` says otherwise.
std::string NameOf(const EmitOptions& options, const JobOptions& job);

// Whether its processes are several, which have to know each other.
bool IsSeveral(const JobOptions& job);

// `job.command`, `size`, `servers`, `port`, `max_restarts`, `allow_plaintext`,
// `certificates` and `ssh.program`, this program, are looked at.
// Throws Error(kInvalidArgument) for what the other would not take.
//
// Slurm: one task a process, of as many nodes as Slurm chooses; the nodes have
// the user's folder of certificates, or the script makes the job's own, or with
// `allow_plaintext` a token, in the folder it is submitted from, which the
// nodes must share, and takes them away.
// Parameter servers are tasks of the same step, which ends as a whole where one
// fails; each task finds out on its node which it is, and tells the program by
// SLUICE_CONFIG. A node has bash and scontrol.
// Kubernetes: an Indexed Job, another one of parameter servers, a headless
// Service that names the pods of both, and a Secret with certificates, the
// user's or new ones, or with a token, all as one List in JSON, which YAML
// contains: for `kubectl apply -f -` or `create`; it holds what is secret.
std::string SlurmScript(const EmitOptions& options, const JobOptions& job);
std::string KubernetesManifest(const EmitOptions& options,
                               const JobOptions& job);

}  // namespace sluice::launcher

#endif  // SLUICE_APPS_SLUICERUN_EMIT_H_
