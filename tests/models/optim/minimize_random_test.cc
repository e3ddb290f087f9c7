// Optimizers with all that may come between gradients and updates, in any
// order: against a training that is computed by hand, in double.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "graph/builder.h"
#include "graph/session/session.h"
#include "models/optim/optimizers.h"
#include "tests/support/optimizers_by_hand.h"
#include "tests/support/sanitizers.h"

namespace sluice {
namespace {

using testing::ByName;
using testing::Hook;
using testing::Hooked;
using testing::Kind;
using testing::Numbers;
using testing::Parameter;
using testing::Parameters;
using testing::RandomHooks;
using testing::RandomKind;
using testing::Rule;

constexpr int64_t kIn = 4, kClasses = 3, kRows = 6;  // of the table

// Softmax regression on features and on a table's row for each example.
struct Batch {
  Numbers x;
  std::vector<int64_t> ids, labels;
  int64_t size() const { return static_cast<int64_t>(ids.size()); }
};

Batch RandomBatch(std::mt19937& random) {
  Batch batch;
  constexpr int64_t kSizes[] = {0, 1, 2, 3, 7, 7, 7, 7};
  const int64_t n = kSizes[random() % 8];
  for (int64_t i = 0; i < n; ++i) {
    batch.ids.push_back(static_cast<int64_t>(random() % kRows));
    batch.labels.push_back(static_cast<int64_t>(random() % kClasses));
    for (int64_t j = 0; j < kIn; ++j) {
      batch.x.push_back(static_cast<double>(random() % 65) / 16 - 2);
    }
  }
  return batch;
}

ByName GradientsOf(const Parameters& all, const Batch& batch) {
  ByName g;
  for (const auto& [name, p] : all) g[name].resize(p.value.size());
  for (int64_t i = 0; i < batch.size(); ++i) {
    Numbers logits(kClasses);
    for (int64_t c = 0; c < kClasses; ++c) {
      logits[c] = all.at("bias").value[c] +
                  all.at("table").value[batch.ids[i] * kClasses + c];
      for (int64_t j = 0; j < kIn; ++j) {
        logits[c] +=
            batch.x[i * kIn + j] * all.at("weights").value[j * kClasses + c];
      }
    }
    double sum = 0;
    for (const double logit : logits) sum += std::exp(logit);
    for (int64_t c = 0; c < kClasses; ++c) {
      const double d =
          (std::exp(logits[c]) / sum - (c == batch.labels[i] ? 1 : 0)) /
          static_cast<double>(batch.size());
      g["bias"][c] += d;
      g["table"][batch.ids[i] * kClasses + c] += d;
      for (int64_t j = 0; j < kIn; ++j) {
        g["weights"][j * kClasses + c] += batch.x[i * kIn + j] * d;
      }
    }
  }
  return g;
}

std::vector<size_t> Touched(const std::string& name, const Parameter& p,
                            const Batch& batch) {
  std::vector<size_t> at;
  for (size_t i = 0; i < p.value.size(); ++i) {
    const bool read = std::count(batch.ids.begin(), batch.ids.end(),
                                 static_cast<int64_t>(i) / kClasses) > 0;
    if (name != "table" || !p.lazy || read) at.push_back(i);
  }
  return at;
}

class Training {
 public:
  Training(uint32_t seed, DType dtype) : random_(seed), dtype_(dtype) {
    x_ = graph_.Placeholder("x", dtype, {kUnknown, kIn});
    ids_ = graph_.Placeholder("ids", DType::kInt64, {kUnknown});
    labels_ = graph_.Placeholder("labels", DType::kInt64, {kUnknown});
    const Output weights = Variable("weights", {kIn, kClasses});
    const Output bias = Variable("bias", {kClasses});
    const Output table = Variable("table", {kRows, kClasses});
    loss_ = Mean(SparseSoftmaxCrossEntropy(
        MatMul(x_, weights) + bias + EmbeddingLookup(table, ids_), labels_));
    all_.at("bias").decays = false;
    train_ = RandomOptimizer().Minimize(loss_);
    session_ = std::make_unique<Session>(graph_);
    session_->Initialize();
  }

  void Steps(int steps) {
    for (int i = 0; i < steps; ++i) Step();
  }

  void Check(double tolerance) {
    for (const auto& [name, p] : all_) {
      CAPTURE(name);
      CheckNear(name, p.value, tolerance);
      if (averages_) CheckNear(name + "/average", p.average, tolerance);
    }
    if (scale_) {
      CHECK(session_->Read(graph_.Get("loss_scale/scale")).At(0) == *scale_);
    }
  }
  const std::string& what() const { return what_; }

 private:
  bool Chance(int of) { return random_() % static_cast<uint32_t>(of) == 0; }

  Output Variable(const std::string& name, const Shape& shape) {
    Tensor first(DType::kFloat64, shape);
    for (double& v : first.values<double>()) {
      v = static_cast<double>(random_() % 33) / 16 - 1;
    }
    Parameter& p = all_[name];
    const auto values = first.values<double>();
    p.value.assign(values.begin(), values.end());
    for (Numbers* kept : {&p.a, &p.b, &p.average, &p.collected}) {
      kept->resize(p.value.size());
    }
    return graph_.Variable(name, CopyOf(first.Cast(dtype_)));
  }

  Optimizer RandomOptimizer() {
    const Kind kind = RandomKind(
        schedules::Piecewise({4, 8}, {0.125, 0.25, 0.0625}), random_);
    rule_ = kind.rule;
    Optimizer optimizer = kind.optimizer;
    what_ = optimizer.name();
    bool slices = kind.rows;
    if (optimizer.name() == "adagrad") {
      for (auto& [name, p] : all_) {
        std::fill(p.a.begin(), p.a.end(), 0.25);
      }
    }
    const bool own = what_ == "adamw" || what_ == "lars" || what_ == "lamb";
    std::optional<Hook> decay;
    for (auto& [hook, of] : RandomHooks(random_, own)) {
      const bool decays = hook.target<DecayHook>() != nullptr;
      slices = slices && (decays ? own : hook.target<SlicesHook>() != nullptr);
      optimizer = optimizer.With(hook);
      if (decays) {
        decay = of;
      } else {
        hooks_.push_back(of);
      }
      what_ += " hook";
    }
    if (decay) hooks_.push_back(*decay);  // comes last
    if (Chance(3)) {
      optimizer = optimizer.WithRateFactor("b*", 0.5).WithRateFactor("t*", 2);
      all_.at("bias").rate = 0.5;
      all_.at("table").rate = 2;
      what_ += " factors";
    }
    if (slices && Chance(2)) {
      optimizer = optimizer.WithSparseRows("table");
      all_.at("table").lazy = true;
      what_ += " rows";
    }
    if (Chance(3)) {
      averages_ = true;
      optimizer = optimizer.WithAverages(0.75);
      what_ += " averages";
    }
    if (Chance(3)) {
      scale_ = 8;
      optimizer = optimizer.WithLossScaling({.initial = 8, .window = 3});
      what_ += " scaled";
    }
    if (Chance(4)) optimizer = optimizer.WithRecompute();
    return optimizer;
  }

  // A number among the features that is none, where that is to be survived.
  void Step() {
    Batch batch = RandomBatch(random_);
    if (scale_ && batch.size() > 0 && Chance(4)) {
      batch.x[random_() % batch.x.size()] =
          std::numeric_limits<double>::infinity();
    }
    Tensor x(DType::kFloat64, {batch.size(), kIn});
    std::copy(batch.x.begin(), batch.x.end(), x.data<double>());
    session_->Run({{x_, x.Cast(dtype_)},
                   {ids_, Tensor::Vector<int64_t>(std::span(batch.ids))},
                   {labels_, Tensor::Vector<int64_t>(std::span(batch.labels))}},
                  train_);
    Expect(batch);
  }

  void Expect(const Batch& batch) {
    constexpr double kRates[] = {0.125, 0.25, 0.0625};
    const double rate = kRates[step_ < 4 ? 0 : step_ < 8 ? 1 : 2];
    ++step_;
    ByName g = GradientsOf(all_, batch);
    Hooked run;
    for (const auto& [name, x] : g) {
      for (const double v : x) run.finite = run.finite && std::isfinite(v);
    }
    run.number = static_cast<double>(step_ - skipped_);
    if (scale_) ScaleFor(run.finite);
    // Which run it is Accumulate counts itself.
    const double number = run.number;
    run.number = static_cast<double>(step_);
    bool collects = false;
    for (const Hook& hook : hooks_) {
      const double before = run.number;
      hook(all_, g, run);
      collects = collects || run.number != before || !run.update;
    }
    if (!collects) run.number = number;
    if (!run.update || !run.finite) {
      // Until there is an update, averages are the variables.
      for (auto& [name, p] : all_) {
        if (!updated_) p.average = p.value;
      }
      return;
    }
    updated_ = true;
    for (auto& [name, p] : all_) {
      rule_(p, g.at(name), rate * p.rate, run.number, Touched(name, p, batch));
      const double keep = std::min(0.75, (run.number - 1) / (run.number + 9));
      for (size_t i = 0; averages_ && i < p.value.size(); ++i) {
        p.average[i] = keep * p.average[i] + (1 - keep) * p.value[i];
      }
    }
  }

  void ScaleFor(bool finite) {
    good_ = finite ? good_ + 1 : 0;
    if (!finite) {
      ++skipped_;
      *scale_ = std::max(*scale_ / 2, 1.0);
    } else if (good_ == 3) {
      good_ = 0;
      *scale_ *= 2;
    }
  }

  void CheckNear(const std::string& name, const Numbers& wanted,
                 double tolerance) {
    const Tensor got = session_->Read(graph_.Get(name));
    for (size_t i = 0; i < wanted.size(); ++i) {
      const double value = got.At(static_cast<int64_t>(i));
      const bool near =
          std::abs(value - wanted[i]) <= tolerance * (1 + std::abs(wanted[i]));
      if (near) continue;
      CAPTURE(i);
      CHECK(value == wanted[i]);
      return;
    }
  }

  std::mt19937 random_;
  const DType dtype_;
  Graph graph_;
  Output x_, ids_, labels_, loss_;
  Operation train_;
  std::unique_ptr<Session> session_;
  Parameters all_;
  Rule rule_;
  std::vector<Hook> hooks_;
  bool averages_ = false, updated_ = false;
  std::optional<double> scale_;
  int64_t step_ = 0, skipped_ = 0, good_ = 0;
  std::string what_;
};

TEST_CASE("any optimizer with anything between does what is written of it") {
  for (uint32_t seed = 0; seed < testing::Rounds(600u); ++seed) {
    const bool wide = seed % 2 == 0;
    Training training(seed, wide ? DType::kFloat64 : DType::kFloat32);
    CAPTURE(seed);
    CAPTURE(training.what());
    training.Steps(13);
    training.Check(wide ? 1e-6 : 2e-3);
  }
}

}  // namespace
}  // namespace sluice
