// Trainings whose tensors go between GPUs of several tasks: workers of
// parameter servers, and stages of a pipeline.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tests/kernels/cuda/emulation/gpu.h"
#include "tests/support/error_text.h"
#include "tests/support/sanitizers.h"
#include "tests/support/sentences.h"
#include "tests/support/served_training.h"

namespace sluice::testing {
namespace {

// Each worker on a device of its own, logical ones where there are not as many.
Task OnDevices(const char* type, Task task) {
  task.options = [type, before = task.options](int rank) {
    TrainingOptions options = before(rank);
    options.session.devices = {type + std::to_string(rank)};
    options.session.share_accelerators = true;
    return options;
  };
  return task;
}

Task Plain() {
  return {.spec = [](int) { return PlainSpec(); }, .run = ToyRun(2)};
}

// What it sees is its own: of a step or two of each.
TEST_CASE("workers on GPUs train on servers what workers on CPUs do") {
  RegisterGpu();
  for (const int workers : {1, 2}) {
    CAPTURE(workers);
    const std::vector<Trained> wanted =
        TrainOn(2, workers, kSync, OnDevices("/cpu:", Plain()));
    const std::vector<Trained> got =
        TrainOn(2, workers, kSync, OnDevices("/gpu:", Plain()));
    // What is cut over the servers is joined on the GPU.
    const std::vector<Trained> cut =
        TrainOn(2, workers, kSync, OnDevices("/gpu:", Plain()),
                [](TrainingServers& servers) { servers.dense_from = 1; });
    for (const Trained& worker : cut) CheckEqual(worker, got[0]);
    for (const Trained& worker : got) {
      CheckNear(worker, wanted[0], 1e-3);
      CheckVariables(worker, got[0]);
      CHECK(worker.losses == got[0].losses);
    }
  }
}

TEST_CASE("workers on GPUs train on servers at speeds of their own") {
  RegisterGpu();
  for (const Lead lead : {Lead(kAnyLead), Lead(1)}) {
    Task task = OnDevices("/gpu:", Plain());
    task.run.epochs = 4;
    const std::vector<Trained> all = TrainOn(1, 2, lead, task);
    for (const Trained& each : all) {
      REQUIRE(each.error == "");
      CheckVariables(each, all[0]);
    }
    const auto& values = all[0].result.evaluation->values;
    CHECK(values[0].first == "loss");
    CHECK(values[0].second < 1);
  }
}

// Steps are of what workers have brought to the servers.
void Contribute(TrainingServers& servers) {
  servers.backups = 0;
}

TEST_CASE("workers on GPUs contribute to steps with backups") {
  RegisterGpu();
  const std::vector<Trained> wanted =
      TrainOn(2, 2, kSync, OnDevices("/cpu:", Plain()), Contribute);
  const std::vector<Trained> got =
      TrainOn(2, 2, kSync, OnDevices("/gpu:", Plain()), Contribute);
  for (const Trained& worker : got) {
    REQUIRE(worker.error == "");
    CheckNear(worker, wanted[0], 1e-3);
    CheckVariables(worker, got[0]);
  }
}

Task OfATable() {
  Task task = {.run = ToyRun(2)};
  task.run.batch_size = 12;
  task.spec = [](int) {
    TrainerSpec spec = ToySpec();
    spec.input = Sentences;
    spec.model = Reader;
    spec.optimizer = [](const RunContext&) { return OfRows(0); };
    return spec;
  };
  return task;
}

// How the same is trained with variables on CPUs of servers and on their GPUs.
void CheckServersOnGpus(int servers, int workers, Lead lead, const Task& plain,
                        const std::function<void(TrainingServers&)>& change) {
  std::vector<Trained> on_cpus;
  for (const char* worker : {"/cpu:", "/gpu:"}) {
    for (const DeviceType type : {DeviceType::kCpu, DeviceType::kCuda}) {
      CAPTURE(worker);
      CAPTURE(NameOf(type));
      const std::vector<Trained> got = TrainOn(
          servers, workers, lead, OnDevices(worker, plain), change, type);
      if (on_cpus.empty()) on_cpus = got;
      for (const Trained& each : got) {
        REQUIRE(each.error == "");
        CheckVariables(each, got[0]);
        if (!lead || workers == 1) CheckNear(each, on_cpus[0], 1e-3);
      }
    }
  }
}

// Of one where there is but one GPU.
int Servers() {
  return OnRealGpu() ? 1 : 2;
}

TEST_CASE("variables on GPUs of servers train as on their CPUs") {
  RegisterGpu();
  for (const int workers : {1, 2}) {
    for (const Lead lead : {kSync, Lead(1)}) {
      CAPTURE(workers);
      CAPTURE(lead.value_or(-1));
      CheckServersOnGpus(Servers(), workers, lead, Plain(), {});
    }
  }
  CheckServersOnGpus(Servers(), 2, kSync, Plain(), Contribute);
  CheckServersOnGpus(Servers(), 2, kSync, Plain(),
                     [](TrainingServers& all) { all.dense_from = 1; });
}

TEST_CASE("whatever comes between a gradient and its variable") {
  RegisterGpu();
  for (uint32_t seed = 0; seed < Rounds(12U); ++seed) {
    CAPTURE(seed);
    Task task = {.run = ToyRun(1)};
    task.spec = [seed](int) {
      TrainerSpec spec = PlainSpec();
      spec.optimizer = [seed](const RunContext&) {
        return SomeOptimizer(seed);
      };
      return spec;
    };
    CheckServersOnGpus(Servers(), 1 + static_cast<int>(seed % 2), kSync, task,
                       [&](TrainingServers& all) {
                         if (seed % 3 == 0) all.dense_from = 1;
                         if (seed % 5 == 0) all.backups = 0;
                       });
  }
}

TEST_CASE("tables on GPUs of servers train as on their CPUs") {
  RegisterGpu();
  for (const Lead lead : {kSync, Lead(kAnyLead)}) {
    CheckServersOnGpus(Servers(), 1, lead, OfATable(),
                       [](TrainingServers& all) { all.cut_from = 1; });
    CheckServersOnGpus(Servers(), 1, lead, OfATable(), {});  // whole
  }
}

// On one of the GPUs, while other variables are cut over them.
TEST_CASE("tables that are updated whole train on GPUs of servers, too") {
  RegisterGpu();
  Task task = OfATable();
  task.spec = [before = task.spec](int rank) {
    TrainerSpec spec = before(rank);
    spec.optimizer = [](const RunContext&) {
      return optimizers::Momentum(0.05, 0.9);
    };
    return spec;
  };
  CheckServersOnGpus(Servers(), 1, kSync, task,
                     [](TrainingServers& all) { all.dense_from = 1; });
}

// Rows are counted, and dealt out to the servers, on the worker's host.
TEST_CASE("workers on GPUs train tables whose rows are on several servers") {
  RegisterGpu();
  for (const Lead lead : {kSync, Lead(kAnyLead)}) {
    const auto train = [&](const char* type) {
      Task task = OnDevices(type, OfATable());
      task.after_step = [](int, TrainingRun& run) {
        CHECK(run.IsTable("words/table"));
      };
      return TrainOn(3, 1, lead, task,
                     [](TrainingServers& all) { all.cut_from = 1; })[0];
    };
    const Trained wanted = train("/cpu:"), got = train("/gpu:");
    REQUIRE(got.error == "");
    CheckNear(got, wanted, 1e-3);
  }
}

TEST_CASE("stages on GPUs train the bits of one GPU") {
  RegisterGpu();
  for (const bool replicated : {false, true}) {
    CAPTURE(replicated);
    Task task = OnDevices("/gpu:", ToyTask(4, 1));
    const Trained one = TrainWith(1, task)[0];
    task.stages = 2;
    for (const Trained& each : TrainWith(replicated ? 4 : 2, task)) {
      REQUIRE(each.error == "");
      CHECK(each.losses == one.losses);
      CHECK(each.result.evaluation->values == one.result.evaluation->values);
      for (const auto& [name, value] : each.variables) {
        CAPTURE(name);
        CHECK(value.BitEqual(one.variables.at(name)));
      }
    }
  }
}

TEST_CASE("stages of other kinds of devices are told so") {
  RegisterGpu();
  Task task = ToyTask(2, 1);
  task.stages = 2;
  task.options = [before = task.options](int rank) {
    TrainingOptions options = before(rank);
    options.session.devices = {rank == 0 ? "/gpu:0" : "/cpu:0"};
    return options;
  };
  for (const Trained& each : TrainWith(2, task)) {
    CHECK(Contains(each.error, "kind of device"));
  }
}

}  // namespace
}  // namespace sluice::testing
