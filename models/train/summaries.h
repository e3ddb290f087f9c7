// Training's curves for TensorBoard, in <log_dir>/train and <log_dir>/eval.
#ifndef SLUICE_MODELS_TRAIN_SUMMARIES_H_
#define SLUICE_MODELS_TRAIN_SUMMARIES_H_

#include <memory>
#include <string>

#include "io/event_file.h"
#include "models/train/hook.h"
#include "models/train/throughput.h"

namespace sluice {

// Every `every` steps loss, learning rate, examples per second, metrics and the
// model's summaries; after each evaluation its figures, and histograms of the
// trainable variables; once the graph and a few input images. Does nothing but
// say so where the build lacks event files.
class Summaries : public Hook {
 public:
  Summaries(std::string log_dir, int64_t every)
      : log_dir_(std::move(log_dir)), every_(every) {}
  void Begin(TrainingRun& run) override;
  bool Measures(const TrainingRun& run, int64_t step) const override;
  void AfterStep(TrainingRun& run) override;
  void AfterEvaluation(TrainingRun& run, const Evaluation& evaluation) override;
  void End(TrainingRun& run) override;

 private:
  void WriteImages(const TrainingRun& run);

  std::string log_dir_;
  int64_t every_;
  std::unique_ptr<EventWriter> train_, eval_;  // null: not to be had
  bool images_written_ = false;
  Throughput throughput_;
};

// A graph as TensorBoard shows it.
EventGraph ToEventGraph(const Graph& graph);

}  // namespace sluice

#endif  // SLUICE_MODELS_TRAIN_SUMMARIES_H_
