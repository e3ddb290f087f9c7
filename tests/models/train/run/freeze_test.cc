// TrainingOptions::freeze: what it names stays bit for bit, statistics too, and
// what it does not trains as if the rest were constants.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>
#include <map>
#include <random>
#include <set>

#include "models/optim/gradient_hooks.h"
#include "models/optim/name_pattern.h"
#include "models/train/hooks/hooks.h"
#include "models/zoo/resnet.h"
#include "tests/support/error_text.h"
#include "tests/support/toy_training.h"

namespace sluice {
namespace {

using testing::Contains;
using testing::ErrorOf;
using testing::kPoints;
using testing::TemporaryFolder;
using testing::ToyRun;
using testing::ToySpec;

using Values = std::map<std::string, Tensor>;

RunContext Training(double epochs = 1) {
  RunContext context = ToyRun(epochs);
  context.mode = Mode::kTrain;
  return context;
}

Values ValuesOf(TrainingRun& run) {
  Values values;
  for (const auto& [name, tensor] :
       ReadVariables(run.session(), run.graph().Variables())) {
    values[name] = tensor.Clone();
  }
  return values;
}

std::set<std::string> Changed(const Values& before, const Values& after) {
  std::set<std::string> changed;
  for (const auto& [name, tensor] : after) {
    if (!tensor.BitEqual(before.at(name))) changed.insert(name);
  }
  return changed;
}

// The toy network, or ResNet-20 on noise, with an optimizer that keeps slots,
// decays and averages: all that may touch a variable.
TrainerSpec Everything(bool resnet) {
  TrainerSpec spec = ToySpec();
  if (resnet) {
    spec.input = [](const RunContext& run) {
      Tensor image(DType::kFloat32, {8, 8, 8, 3});
      Tensor label(DType::kInt64, {8});
      std::mt19937 random(1);
      std::normal_distribution<float> normal;
      for (int64_t i = 0; i < image.elements(); ++i) {
        image.data<float>()[i] = normal(random);
      }
      for (int64_t i = 0; i < 8; ++i) label.data<int64_t>()[i] = i % 3;
      Dataset points =
          datasets::FromTensors({{"image", image}, {"label", label}});
      if (run.training()) points = points.Repeat();
      return points.Batch(run.batch_size);
    };
    spec.model = [](Scope& scope, const Features& in, const RunContext& run) {
      const Output logits = ResNet(scope, "resnet20", in["image"],
                                   {.classes = 3, .training = run.training()});
      return ModelSpec{
          .loss = Mean(SparseSoftmaxCrossEntropy(logits, in["label"]))};
    };
  }
  spec.optimizer = [](const RunContext&) {
    return optimizers::Momentum(0.01, 0.9)
        .With(gradients::WeightDecay(0.1,
                                     [](std::string_view) {
                                       return false;  // nothing is excluded
                                     }))
        .WithAverages(0.9);
  };
  return spec;
}

TEST_CASE("what is frozen stays, all else trains: random names") {
  std::mt19937 random(3);
  for (int round = 0; round < 24; ++round) {
    const bool resnet = round % 4 == 0;
    const TrainerSpec spec = Everything(resnet);
    RunContext context = Training();
    if (resnet) context.batch_size = 8;
    TrainingOptions options;
    options.session.fuse = round % 3 != 0;
    std::vector<std::string> all;
    std::set<std::string> trainable;
    {
      const TrainingRun run(spec, context, options);
      for (const Output& variable : run.model_variables()) {
        all.push_back(variable.name());
        if (variable.node().attrs().Bool("trainable")) {
          trainable.insert(variable.name());
        }
      }
    }
    // Some of the names, and a prefix of one.
    std::string patterns;
    for (const std::string& name : all) {
      if (random() % 3 == 0) patterns += name + ",";
    }
    const std::string& one = all[random() % all.size()];
    patterns += one.substr(0, one.find('/')) + "*";
    CAPTURE(patterns);
    options.freeze = patterns;

    TrainingRun run(spec, context, options);
    const Values before = ValuesOf(run);
    for (int i = 0; i < 3; ++i) REQUIRE(run.Step(false));
    const std::set<std::string> changed = Changed(before, ValuesOf(run));
    bool left = false;
    for (const std::string& name : all) {
      CAPTURE(name);
      const bool frozen = MatchesAny(name, patterns);
      if (frozen) {
        CHECK_FALSE(changed.contains(name));
        CHECK_FALSE(before.contains(name + "/velocity"));
        CHECK_FALSE(before.contains(name + "/average"));
      } else if (trainable.contains(name)) {
        left = true;
        CHECK(changed.contains(name));
        CHECK(before.contains(name + "/average"));
      } else {
        // Running statistics: of two, either freezes both.
        const std::string norm = name.substr(0, name.rfind('/'));
        CHECK(changed.contains(name) !=
              (MatchesAny(norm + "/running_mean", patterns) ||
               MatchesAny(norm + "/running_variance", patterns)));
      }
    }
    CHECK(left);
  }
}

TEST_CASE("a head on frozen batch normalisation, against a loop") {
  // y = norm(x) w + b by least squares; norm has statistics of its own.
  constexpr int64_t kIn = 3, kOut = 2, kBatch = 25, kSteps = 12;
  constexpr double kRate = 0.05, kEpsilon = 1e-5;
  TrainerSpec spec = ToySpec();
  spec.model = [](Scope& scope, const Features& in, const RunContext& run) {
    Output x = layers::BatchNorm(scope / "norm", in["x"],
                                 {.training = run.training()});
    const Output y = layers::Dense(scope / "head", x, {.units = kOut});
    return ModelSpec{.loss = Mean(Square(y - 1)), .exports = {{"y", y}}};
  };
  spec.optimizer = [](const RunContext&) { return optimizers::Sgd(kRate); };
  TrainingOptions options;
  options.freeze = "norm/*";
  TrainingRun run(spec, Training(2), options);
  std::mt19937 random(5);
  std::uniform_real_distribution<float> uniform(0.5F, 2);
  Values values;
  for (const Output& variable : run.model_variables()) {
    Tensor value = run.session().Read(variable).Clone();
    for (int64_t i = 0; i < value.elements(); ++i) {
      value.data<float>()[i] = uniform(random);
    }
    run.session().Write(variable, value);
    values[variable.name()] = value;
  }
  const auto at = [&](const char* name, int64_t i) {
    return values.at(name).At(i);
  };
  std::vector<double> w(kIn * kOut), b(kOut);
  for (int64_t i = 0; i < kIn * kOut; ++i) w[i] = at("head/weights", i);
  for (int64_t o = 0; o < kOut; ++o) b[o] = at("head/bias", o);

  for (int step = 0; step < kSteps; ++step) {
    REQUIRE(run.Step(false));
    const Tensor& x = run.batch()["x"];
    std::vector<double> dw(w.size()), db(b.size());
    double loss = 0;
    for (int64_t n = 0; n < kBatch; ++n) {
      double in[kIn];
      for (int64_t i = 0; i < kIn; ++i) {
        in[i] = (x.At(n * kIn + i) - at("norm/running_mean", i)) /
                    std::sqrt(at("norm/running_variance", i) + kEpsilon) *
                    at("norm/scale", i) +
                at("norm/offset", i);
      }
      for (int64_t o = 0; o < kOut; ++o) {
        double y = b[o];
        for (int64_t i = 0; i < kIn; ++i) y += in[i] * w[i * kOut + o];
        const double d = 2 * (y - 1) / (kBatch * kOut);
        loss += (y - 1) * (y - 1) / (kBatch * kOut);
        db[o] += d;
        for (int64_t i = 0; i < kIn; ++i) dw[i * kOut + o] += d * in[i];
      }
    }
    CHECK(run.loss() == doctest::Approx(loss).epsilon(1e-4));
    for (size_t i = 0; i < w.size(); ++i) w[i] -= kRate * dw[i];
    for (size_t o = 0; o < b.size(); ++o) b[o] -= kRate * db[o];
  }
  const Values after = ValuesOf(run);
  for (size_t i = 0; i < w.size(); ++i) {
    CHECK(after.at("head/weights").At(static_cast<int64_t>(i)) ==
          doctest::Approx(w[i]).epsilon(1e-4));
  }
  // What is not trained is not differentiated either.
  const auto step = run.StepGraph();
  for (const auto& node : step->nodes()) {
    CHECK(std::string(node->op().name).find("BatchNormGrad") ==
          std::string::npos);
  }
}

TEST_CASE("patterns that freeze nothing, or all, are errors") {
  const TrainerSpec spec = ToySpec();
  TrainingOptions options;
  const auto error = [&](const char* patterns) {
    options.freeze = patterns;
    return ErrorOf([&] { TrainingRun(spec, Training(), options); });
  };
  CHECK(Contains(error("fc1/*,fc9/*"), "freeze: 'fc9/*' matches none"));
  CHECK(Contains(error("fc1/*,"), "empty pattern"));
  CHECK(Contains(error("*"), "no trainable variable"));
}

TEST_CASE("frozen trainings in parts are as in one piece") {
  TrainingOptions options;
  options.freeze = "fc1/*,norm/running_*";
  options.session.deterministic = true;
  const auto train = [&](const std::vector<int64_t>& stops) {
    TemporaryFolder folder;
    options.log_dir = folder.path();
    for (const int64_t stop : stops) {
      Trainer trainer(ToySpec(), ToyRun(3), options);
      trainer.AddHook(std::make_unique<StopAtStep>(stop));
      trainer.Train();
    }
    Values values;
    const auto saved = CheckpointManager::ForReading(folder.path())
                           .RestoreNewest()
                           .ValueOrThrow();
    for (const auto& [name, tensor] : saved->checkpoint.tensors) {
      values[name] = tensor.Clone();
    }
    return values;
  };
  const Values whole = train({30});
  CHECK(Changed(whole, train({7, 19, 30})).empty());
  // With another choice the slots do not fit, which changes nothing.
  TemporaryFolder folder;
  options.log_dir = folder.path();
  Trainer(ToySpec(), ToyRun(1), options).Train();
  options.freeze = "norm/*";
  const std::string error =
      ErrorOf([&] { Trainer(ToySpec(), ToyRun(2), options).Train(); });
  CHECK(Contains(error, "fc1/"));
}

}  // namespace
}  // namespace sluice
