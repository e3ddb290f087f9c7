// Training's curves: for TensorBoard in <log_dir>/train and <log_dir>/eval, and
// the scalars among them in <log_dir>/scalars.csv.
#ifndef SLUICE_MODELS_TRAIN_HOOKS_SUMMARIES_H_
#define SLUICE_MODELS_TRAIN_HOOKS_SUMMARIES_H_

#include <memory>
#include <string>
#include <utility>

#include "io/summaries/event_file.h"
#include "models/train/hooks/hook.h"
#include "models/train/hooks/scalar_log.h"
#include "models/train/hooks/throughput.h"

namespace sluice {

// Every `every` steps loss, learning rate, examples per second, metrics and the
// model's summaries; after each evaluation its figures, and histograms of the
// trainable variables; once the graph and a few input images. Where the build
// lacks event files it says so, and the scalars alone are kept.
class Summaries : public Hook {
 public:
  Summaries(std::string log_dir, int64_t every)
      : log_dir_(std::move(log_dir)), every_(every) {}
  void Begin(TrainingRun& run) override;
  bool Measures(const TrainingRun& run, int64_t step) const override;
  void AfterStep(TrainingRun& run) override;
  void AfterEvaluation(TrainingRun& run, const Evaluation& evaluation) override;
  void End(TrainingRun& run) override;
  void SyncFiles() const override;

 private:
  struct Set {
    std::string name;
    std::unique_ptr<EventWriter> events = nullptr;  // null: not to be had
  };

  void OpenEvents(const TrainingRun& run);
  void WriteImages(const TrainingRun& run);
  // Adds a scalar of the last step to the events and the scalar log.
  void AddScalar(const TrainingRun& run, const Set& set,
                 const std::string& name, double value);
  void Flush();

  std::string log_dir_;
  int64_t every_;
  Set train_ = {"train"};
  Set eval_ = {"eval"};
  std::unique_ptr<ScalarLog> log_;
  bool images_written_ = false;
  Throughput throughput_;
};

// A graph as TensorBoard shows it.
EventGraph ToEventGraph(const Graph& graph);

}  // namespace sluice

#endif  // SLUICE_MODELS_TRAIN_HOOKS_SUMMARIES_H_
