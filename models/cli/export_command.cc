#include "models/cli/commands.h"

#include <fmt/format.h>

#include "engine/text/json.h"
#include "models/cli/console.h"
#include "models/cli/interrupt.h"
#include "models/train/trainer.h"

namespace sluice::commands {

int Export(const TrainerSpec& spec, const CommandLine& line) {
  Trainer trainer(spec, line.run, line.training);
  trainer.Export(line.output);
  if (InterruptSignal() != 0) {
    console::Note("the export was complete already: " + line.output);
    return 128 + InterruptSignal();
  }
  if (line.json) {
    console::Print(
        Json{{"event", "export"}, {"path", line.output}}.LenientText());
  } else {
    console::Print(fmt::format("wrote {}", line.output));
  }
  return 0;
}

}  // namespace sluice::commands
