#include "models/train/step_loop.h"

#include <fmt/format.h>

#include <chrono>

#include "models/train/hooks/hooks.h"
#include "models/train/run/evaluation_times.h"

namespace sluice {

void NoteLeftOver(const TrainingRun& run, std::string_view when,
                  int64_t steps) {
  const int64_t batches = run.accumulates();
  if (steps % batches == 0) return;
  run.options().Note(
      fmt::format("the last {} of {} batches {} in no update, which are by {} "
                  "batches each (--accumulate)",
                  steps % batches, steps, when, batches));
}

void StepLoop::Run() {
  run_.BeginRounds(era_);
  TellHooks([&](Hook& hook) { hook.Begin(run_); });
  CheckUpdated();
  // A resumed one begins with the evaluation that it was stopped before.
  if (!run_.done()) EvaluateWhenDue();
  for (Agreement::Decision next = Decide(); next.stop.empty() && !run_.done();
       next = Decide()) {
    if (next.regroup) regroup_();
    if (!Step(next.measure)) break;
    EvaluateWhenDue();
  }
  End();
}

// A snapshot that they make has their states once all of them have been told.
void StepLoop::TellHooks(const std::function<void(Hook&)>& tell) {
  for (Hook* hook : hooks_) tell(*hook);
  KeepStates({hooks_.begin(), hooks_.end()}, run_);
}

// Whether to end now, and whether to measure the next step.
Agreement::Decision StepLoop::Decide() {
  Agreement::Decision decision = {agreement_.agreed(), false};
  if (decision.stop.empty()) {
    bool measure = false;
    for (const Hook* hook : hooks_) {
      measure =
          measure || hook->Measures(run_, run_.step() + run_.steps_at_once());
    }
    decision = run_.apart() ? DecideApart(measure) : DecideTogether(measure);
  }
  if (!decision.stop.empty()) run_.Stop(decision.stop);
  return decision;
}

Agreement::Decision StepLoop::DecideTogether(bool measure) {
  Agreement::Decision decision = agreement_.Decide(
      run_.stop_reason(), measure, run_.wants_meeting(), run_.times());
  run_.Hear(decision.times);
  if (decision.meet && decision.stop.empty()) AtMeeting();
  return decision;
}

Agreement::Decision StepLoop::DecideApart(bool measure) {
  // Those that are done have no further step, and meet behind the last.
  while (!run_.done() && MeetNow()) {
    const std::string stop = agreement_.Decide(run_.stop_reason(), false).stop;
    AtMeeting();
    run_.workers().Barrier("met");
    if (!stop.empty()) return {stop, false};
  }
  return {"", measure};
}

bool StepLoop::MeetNow() {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  const bool wants = run_.wants_meeting() || run_.stopped() ||
                     !run_.options().StopReason().empty();
  const bool now = meetings_.Now(wants, run_.times());
  run_.CountWait(std::chrono::duration<double>(Clock::now() - begin).count());
  run_.Hear(meetings_.times());
  return now;
}

void StepLoop::AtMeeting() {
  run_.MarkTogether();
  TellHooks([&](Hook& hook) { hook.AtMeeting(run_); });
}

// False where the input has ended before the training. Where epochs end with
// it, it may be the end of any.
bool StepLoop::Step(bool measure) {
  if (!run_.Step(measure)) {
    const bool of_epoch = !run_.knows_total_steps();
    CheckUpdated();
    if (!of_epoch || run_.done()) NoteLeftOver(run_, "are", run_.step());
    if (of_epoch) return true;
    run_.Stop(fmt::format("the input ended after {} steps", run_.step()));
    return false;
  }
  TellHooks([&](Hook& hook) { hook.AfterStep(run_); });
  if (measure && cache_trouble_.empty()) {
    cache_trouble_ = run_.input().CacheTrouble();
    if (!cache_trouble_.empty()) run_.options().Note(cache_trouble_);
  }
  return true;
}

// Where only the input's end tells how many steps there are, so few as make no
// update are found out there, by all workers after the same step. What was
// collected is saved as after any error: with more epochs such a training goes
// on, with as many it is refused again.
void StepLoop::CheckUpdated() {
  const int64_t steps = run_.step(), batches = run_.accumulates();
  if (run_.knows_total_steps() || !run_.done()) return;
  if (steps == 0 || steps >= batches) return;
  // With backup workers some are a step behind, and need the others until then.
  if (run_.apart()) run_.workers().Barrier("ended");
  throw Error(Code::kInvalidArgument,
              fmt::format("{} batches make an update (--accumulate), and the "
                          "input has ended after {}: nothing was trained",
                          batches, steps));
}

void StepLoop::Evaluate(bool due) {
  result_.evaluation = run_.Evaluate(&agreement_);
  if (!result_.evaluation) return;
  result_.evaluation->due = due;
  const int64_t before = run_.evaluations().value_or(0);
  if (due) CountEvaluations(run_);
  try {
    TellHooks(
        [&](Hook& hook) { hook.AfterEvaluation(run_, *result_.evaluation); });
  } catch (...) {
    run_.set_evaluations(before);  // whoever goes on makes it again
    throw;
  }
}

void StepLoop::EvaluateWhenDue() {
  if (!EvaluationIsDue(run_)) return;
  run_.Finish();
  // Due for all after the same step.
  const bool stops = !agreement_.Reason().empty();
  run_.MarkTogether();
  if (stops) return;
  Evaluate(true);
  // What it saves is of now.
  if (run_.apart()) run_.workers().Barrier("evaluated");
}

void StepLoop::End() {
  run_.Finish();
  const bool evaluated =
      result_.evaluation && result_.evaluation->step == run_.step();
  result_.interrupted = agreement_.Reason();
  run_.MarkTogether();
  if (!result_.interrupted.empty()) {
    result_.evaluation.reset();
  } else if (!evaluated) {
    Evaluate(run_.done());
    if (!result_.evaluation) result_.interrupted = agreement_.Reason();
  }
  for (Hook* hook : hooks_) hook->End(run_);
}

}  // namespace sluice
