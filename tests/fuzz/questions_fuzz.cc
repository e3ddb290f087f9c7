// What workers ask the first parameter server, a question a line, and what it
// answers: any bytes are one, or an error; what was read is written to text
// that reads the same; and any questions, in any order, get an answer or an
// error.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "dist/servers/admission.h"
#include "dist/servers/pace.h"

namespace {

using sluice::dist::Admission;
using sluice::dist::Pace;

// More would be slow, and no other.
constexpr int kMostWorkers = 64;

struct Server {
  std::optional<Pace> pace;
  std::optional<Admission> admission;
};

void AskPace(Server& server, const std::string& line) {
  const auto call = sluice::dist::ParsePaceCall(line);
  if (!call.ok()) return;
  const std::string text = TextOf(*call);
  SLUICE_CHECK(TextOf(*sluice::dist::ParsePaceCall(text)) == text);
  if (!server.pace && call->workers <= kMostWorkers) {
    server.pace.emplace(call->workers, call->lead);
  }
  if (!server.pace) return;
  const auto answer = server.pace->Ask(call->question);
  if (!answer.ok()) return;
  SLUICE_CHECK(*sluice::dist::ParseAnswer(TextOf(*answer)) == *answer);
}

void AskAdmission(Server& server, const std::string& line) {
  const auto call = sluice::dist::ParseAdmissionCall(line);
  if (!call.ok()) return;
  const std::string text = TextOf(*call);
  SLUICE_CHECK(sluice::dist::IsAdmissionCall(text));
  SLUICE_CHECK(TextOf(*sluice::dist::ParseAdmissionCall(text)) == text);
  if (!server.admission && call->workers <= kMostWorkers) {
    server.admission.emplace(call->workers, call->backups);
  }
  if (!server.admission) return;
  const auto answer = server.admission->Ask(call->question);
  if (!answer.ok()) return;
  const std::string said = TextOf(*answer);
  SLUICE_CHECK(TextOf(*sluice::dist::ParseAdmissionAnswer(said)) == said);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view text(reinterpret_cast<const char*>(data), size);
  Server server;
  while (!text.empty()) {
    const std::string line(text.substr(0, text.find('\n')));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    AskPace(server, line);
    AskAdmission(server, line);
    (void)sluice::dist::ParseAnswer(line);
    const auto answer = sluice::dist::ParseAdmissionAnswer(line);
    if (!answer.ok()) continue;
    const std::string said = TextOf(*answer);
    SLUICE_CHECK(TextOf(*sluice::dist::ParseAdmissionAnswer(said)) == said);
  }
  return 0;
}
