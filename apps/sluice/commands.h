// The subcommands of the tool `sluice`. Each prints its results on stdout and
// throws Error.
#ifndef SLUICE_APPS_SLUICE_COMMANDS_H_
#define SLUICE_APPS_SLUICE_COMMANDS_H_

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace sluice::tool {

struct GraphOptions {
  std::string path;
  std::vector<std::string> passes;   // names, "partition" last
  std::vector<std::string> devices;  // for "place"
  std::vector<std::string> feeds;    // "image=32,784"
  std::vector<std::string> keep;     // nodes that "prune" needs
  bool memory = false;             // plan the step and say what lives in memory
  std::string precision = "fp32";  // of that step
  // Graphviz, of about so many boxes ("60") or of every node ("full"); empty:
  // none.
  std::string dot;
  bool json = false;
};
// Prints a saved graph, after passes, as text, Graphviz or one JSON object per
// node; or the memory it takes.
void ShowGraph(const GraphOptions& options);
// The names that `passes` may hold.
std::vector<std::string> PassNames();

// Lists what a safetensors or TensorBoard event file holds. A safetensors file
// is verified and its values are described, unless `quick`: then its header
// alone is read. Damage is thrown after what could be read was listed: the
// tensors without their values, the records before it.
void Inspect(const std::string& path, bool quick, bool json);
// Prints in what two safetensors files differ: tensors, their dtypes, shapes
// and values, and metadata. Both are verified; `quick` reads the headers alone
// and compares no values. Returns whether the files are equal. NaN equals NaN,
// and 0 equals -0.
bool Compare(const std::string& first, const std::string& second, bool quick,
             bool json);

// Writes a page that lays the scalars of trainings, which they keep in their
// folders, over each other. A folder given twice counts once.
void WriteReport(const std::vector<std::string>& log_dirs,
                 const std::string& output);

// Prints how fast trainings of several processes are beside those of few: a row
// for each number of hosts and processes, of which there may be several runs. A
// folder given twice counts once.
void Speedup(const std::vector<std::string>& log_dirs, bool json);

// Lists every op, or describes one.
void ListOps(const std::string& name, bool json);
// docs/ops.md.
std::string OpsPage();

// Says what this machine has and what this build uses of it.
void Doctor(bool json);
// Says what each process of a launcher's job is, parameter servers too, how
// fast they exchange, and what trainings by them would suffer from. That they
// have met says that their addresses, ports and certificates are right. By rank
// 0; the others wait, and servers serve until they are told to end.
void DoctorOfCluster(bool json);

// Adds `sluice worker`.
void AddWorker(CLI::App& app);
// Adds the commands of `sluice data` (apps/sluice/data/data.h), which may set
// the exit code when they run.
void AddData(CLI::App& app, int& exit_code);

}  // namespace sluice::tool

#endif  // SLUICE_APPS_SLUICE_COMMANDS_H_
