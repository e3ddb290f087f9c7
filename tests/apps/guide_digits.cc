// Prints each evaluation, and ends training once one is good enough.
struct GoodEnough : Hook {
  void AfterEvaluation(TrainingRun& run, const Evaluation& found) override {
    const double accuracy = *found.Find("accuracy");
    std::printf("epoch %.0f: accuracy %.4f\n", run.epoch(), accuracy);
    if (accuracy > 0.99) run.Stop("good enough");
  }
};

int main() {
  const RunContext run = {.data_dir = "data/mnist", .epochs = 2};
  Trainer trainer(
      {.name = "digits", .input = Input, .model = Model, .optimizer = Train},
      run, {.log_dir = "runs/trainer"});
  trainer.AddHook(std::make_unique<GoodEnough>());
  trainer.Train();
  return 0;
}
