// Runs fetches and targets on batches of any size: one prepared step for each
// shape of batch, so that whole batches allocate no tensors.
#ifndef SLUICE_MODELS_TRAIN_RUN_BATCH_STEP_H_
#define SLUICE_MODELS_TRAIN_RUN_BATCH_STEP_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/visibility.h"
#include "graph/session/session.h"
#include "models/train/run/model_spec.h"

namespace SLUICE_PUBLIC sluice {

// Whether batches are copied to the device that computes, so that their bytes
// count.
bool CopiesBatches(const SessionOptions& session);

// Not thread-safe. Must not outlive the session and the features.
class BatchStep {
 public:
  // `at_once`: how many batches may be under way, and their values in use.
  BatchStep(Session& session, const Features& features,
            std::vector<Output> fetches, std::vector<Operation> targets = {},
            int at_once = 1);

  // Plans the step for batches of that many examples, without taking memory for
  // it. Throws Error(kResourceExhausted), saying the sizes, when so many steps,
  // `beside` one another, would not fit into the machine's memory; on an
  // accelerator one, which is its own. `batch`, for that: MemoryNeed::batch.
  StepInfo Prepare(int64_t examples, int beside = 1, int64_t batch = 0);
  // Statistics of the step that was started or prepared last. Not to be called
  // while it is under way.
  StepInfo info() const { return prepared_.front().step.info(); }

  // A batch that may be under way.
  class Pending {
   public:
    bool valid() const { return run_.valid(); }
    bool under_way() const { return run_.under_way(); }
    // The fetched values, once they are there; as long as this lives, and
    // until the Start that comes `at_once` after the next. Throws Error.
    std::span<const Tensor> Wait();

   private:
    friend class BatchStep;
    PendingRun run_;
    std::vector<Tensor> values_;
  };
  // Starts the step on a batch, which may be reused at once, as the given
  // replica (PreparedStep::Start) or the session's. Throws Error.
  Pending Start(const Example& batch,
                std::optional<uint32_t> replica = std::nullopt);
  // Runs the step on a batch. Returns the fetched values, valid until the next
  // Run. Throws Error.
  std::span<const Tensor> Run(const Example& batch);

 private:
  struct Prepared {
    std::vector<Shape> shapes;
    PreparedStep step;
    std::vector<std::vector<Tensor>> values;  // taken in turns
    size_t turn = 0;
  };
  Prepared& PreparedFor(const std::vector<Shape>& shapes);

  Session& session_;
  const Features& features_;
  NamedOutputs placeholders_;
  std::vector<Output> fetches_;
  std::vector<Operation> targets_;
  const size_t at_once_;
  std::vector<Prepared> prepared_;  // most recently used first
  std::vector<Tensor> feeds_;
  std::vector<Shape> shapes_;  // of the feeds
  Pending last_;               // of Run
};

}  // namespace sluice

#endif  // SLUICE_MODELS_TRAIN_RUN_BATCH_STEP_H_
