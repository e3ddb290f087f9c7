#include "models/optim/optimizers.h"

#include <fmt/format.h>

#include "graph/ops/optimizer.h"
#include "models/optim/hyperparameters.h"

namespace sluice::optimizers {

Optimizer Sgd(LearningRate rate) {
  return {std::move(rate),
          {"sgd",
           {},
           [](const Update& u) {
             return ApplySgd(u.variable, u.learning_rate, u.gradient, u.rows);
           },
           UpdateRule::Rows::kAlways}};
}

namespace {

Optimizer WithVelocity(LearningRate rate, const char* name,
                       const MomentumRule& rule) {
  RequireFinite(name, "momentum", rule.momentum);
  return {std::move(rate),
          {name,
           {{"velocity"}},
           [=](const Update& u) {
             return ApplyMomentum(u.variable, u.slots[0], u.learning_rate,
                                  u.gradient, rule, u.rows);
           },
           UpdateRule::Rows::kOnWish}};
}

}  // namespace

Optimizer Momentum(LearningRate rate, double momentum) {
  return WithVelocity(std::move(rate), "momentum", {.momentum = momentum});
}

Optimizer Nesterov(LearningRate rate, double momentum) {
  return WithVelocity(std::move(rate), "nesterov",
                      {.momentum = momentum, .nesterov = true});
}

Optimizer RmsProp(LearningRate rate, const RmsPropOptions& options) {
  RequireFraction32("rmsprop", "decay", options.decay);
  RequireFinite("rmsprop", "momentum", options.momentum);
  RequireFactor("rmsprop", "epsilon", options.epsilon);
  const RmsPropRule rule = {options.decay, options.epsilon};
  if (options.momentum == 0) {
    return {std::move(rate),
            {"rmsprop",
             {{"mean_square"}},
             [=](const Update& u) {
               return ApplyRmsProp(u.variable, u.slots[0], u.learning_rate,
                                   u.gradient, rule, u.rows);
             },
             UpdateRule::Rows::kOnWish}};
  }
  const double momentum = options.momentum;
  return {std::move(rate),
          {"rmsprop",
           {{"mean_square"}, {"velocity"}},
           [=](const Update& u) {
             return ApplyRmsPropMomentum(u.variable, u.slots[0], u.slots[1],
                                         u.learning_rate, u.gradient, momentum,
                                         rule, u.rows);
           },
           UpdateRule::Rows::kOnWish}};
}

Optimizer Adagrad(LearningRate rate, const AdagradOptions& options) {
  RequireFactor("adagrad", "initial_accumulator", options.initial_accumulator);
  RequireFactor("adagrad", "epsilon", options.epsilon);
  const AdagradRule rule = {options.epsilon};
  return {
      std::move(rate),
      {"adagrad",
       {{"accumulator", options.initial_accumulator}},
       [=](const Update& u) {
         return ApplyAdagrad(u.variable, u.slots[0], u.learning_rate,
                             u.gradient, rule, u.rows);
       },
       // An element that never had a gradient may have no other divisor.
       static_cast<float>(options.epsilon) > 0 ? UpdateRule::Rows::kAlways
                                               : UpdateRule::Rows::kOnWish}};
}

Optimizer Adam(LearningRate rate, const AdamOptions& options) {
  RequireMoments("adam", options);
  const AdamRule rule = {options.beta1, options.beta2, options.epsilon};
  return {std::move(rate),
          {"adam",
           {{"m"}, {"v"}},
           [=](const Update& u) {
             return ApplyAdam(u.variable, u.slots[0], u.slots[1],
                              u.learning_rate, u.number, u.gradient, rule,
                              u.rows);
           },
           UpdateRule::Rows::kOnWish}};
}

Optimizer AdamW(LearningRate rate, const AdamWOptions& options) {
  RequireMoments("adamw", options);
  RequireFactor("adamw", "weight_decay", options.weight_decay);
  return {std::move(rate),
          {"adamw",
           {{"m"}, {"v"}},
           [options](const Update& u) {
             return ApplyAdamW(u.variable, u.slots[0], u.slots[1],
                               u.learning_rate, u.number, u.gradient,
                               {.beta1 = options.beta1,
                                .beta2 = options.beta2,
                                .epsilon = options.epsilon,
                                .weight_decay = u.weight_decay},
                               u.rows);
           },
           UpdateRule::Rows::kOnWish,
           DecayHook{options.weight_decay, options.exclude}}};
}

Optimizer ByName(std::string_view name) {
  if (name == "sgd") return Sgd(0.1);
  if (name == "momentum") return Momentum(0.01);
  if (name == "nesterov") return Nesterov(0.01);
  if (name == "rmsprop") return RmsProp(0.001);
  if (name == "adagrad") return Adagrad(0.01);
  if (name == "adam") return Adam();
  if (name == "adamw") return AdamW();
  if (name == "lars") return Lars(1.0);
  if (name == "lamb") return Lamb();
  throw Error(Code::kNotFound,
              fmt::format("unknown optimizer '{}': there are sgd, momentum, "
                          "nesterov, rmsprop, adagrad, adam, adamw, lars and "
                          "lamb",
                          name));
}

}  // namespace sluice::optimizers
