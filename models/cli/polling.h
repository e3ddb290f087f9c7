// Waiting for what another process does, by looking again and again. Internal
// to models/cli.
#ifndef SLUICE_MODELS_CLI_POLLING_H_
#define SLUICE_MODELS_CLI_POLLING_H_

#include <chrono>
#include <string>

namespace sluice {

class Polling {
 public:
  // `what` is waited for, for notes: "a checkpoint in 'runs/digits'".
  explicit Polling(std::string what);

  // Until it is time to look again. Says every 10 s what is waited for, unless
  // `quiet`.
  void Wait(bool quiet = false);
  // Since it was made.
  std::chrono::duration<double> elapsed() const;

 private:
  using Clock = std::chrono::steady_clock;
  const std::string what_;
  const Clock::time_point begin_ = Clock::now();
  Clock::time_point note_;  // when the next is due
};

}  // namespace sluice

#endif  // SLUICE_MODELS_CLI_POLLING_H_
