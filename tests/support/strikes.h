// What happens to a process of a job, scripted: to which, at which point of its
// life, and what. The program tests/apps/sluicerun/struck.cc does it to itself;
// tests say what, by the text of it.
#ifndef SLUICE_TESTS_SUPPORT_STRIKES_H_
#define SLUICE_TESTS_SUPPORT_STRIKES_H_

#include <fmt/format.h>

#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

namespace sluice::testing {

struct Strike {
  enum class Harm : uint8_t {
    kKill,  // SIGKILL
    kStop,  // SIGSTOP
    kPart,  // one thread alone ends, that of main; another goes on
    kTell,  // none: the mark alone, for what is done from outside
    kHold   // it goes on when there is a file `go` beside the mark
  };
  enum class Phase : uint8_t {
    kStart,       // before it has read who it is
    kSending,     // before a send: the `then`th after batch `at`
    kComputing,   // `then` us after batch `at`
    kReading,     // while it reads batch `at`
    kEvaluating,  // while it reads batch `at` of its evaluations
    kSaving,      // checkpoint `at`: with `then` it has its name, else not yet
    kEnd          // all is done, and it has not ended
  };
  bool server = false;  // or a rank
  int number = 0;       // which
  Harm harm = Harm::kKill;
  Phase phase = Phase::kStart;
  int at = 0;  // from 1; 0, of batches: since its start
  int then = 0;

  std::string Name() const {
    return fmt::format("{} {}", server ? "server" : "rank", number);
  }
  // "rank 1 kill sending 3 7"
  std::string Text() const {
    return fmt::format("{} {} {} {} {}", Name(),
                       Harms()[static_cast<int>(harm)],
                       Phases()[static_cast<int>(phase)], at, then);
  }

  static const std::vector<std::string>& Harms() {
    static const std::vector<std::string> all = {"kill", "stop", "part", "tell",
                                                 "hold"};
    return all;
  }
  static const std::vector<std::string>& Phases() {
    static const std::vector<std::string> all = {
        "start",      "sending", "computing", "reading",
        "evaluating", "saving",  "end"};
    return all;
  }
};

// One after another, with commas.
inline std::string TextOf(const std::vector<Strike>& strikes) {
  std::string text;
  for (const Strike& strike : strikes) {
    text += (text.empty() ? "" : ",") + strike.Text();
  }
  return text;
}

inline std::vector<Strike> StrikesOf(const std::string& text) {
  std::vector<Strike> strikes;
  std::istringstream all(text);
  for (std::string one; std::getline(all, one, ',');) {
    std::istringstream words(one);
    std::string who, harm, phase;
    Strike strike;
    words >> who >> strike.number >> harm >> phase >> strike.at >> strike.then;
    strike.server = who == "server";
    const auto index = [](const std::vector<std::string>& names,
                          const std::string& name) {
      size_t i = 0;
      while (i + 1 < names.size() && names[i] != name) ++i;
      return static_cast<int>(i);
    };
    strike.harm = static_cast<Strike::Harm>(index(Strike::Harms(), harm));
    strike.phase = static_cast<Strike::Phase>(index(Strike::Phases(), phase));
    strikes.push_back(strike);
  }
  return strikes;
}

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_SUPPORT_STRIKES_H_
