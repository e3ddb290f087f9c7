// Names of files that are not whole yet, as TemporaryName (io/files/file.h)
// gives them: BEGINNING.tmp-PROCESS-SPACE-NUMBER.
#ifndef SLUICE_IO_FILES_TEMPORARY_NAME_H_
#define SLUICE_IO_FILES_TEMPORARY_NAME_H_

#include <optional>
#include <string>
#include <string_view>

#include "engine/visibility.h"

namespace SLUICE_INTERNAL sluice {

struct TemporaryParts {
  // The name that the file is to have; of a long one what there is room for.
  std::string_view beginning;
  // The number of the process that writes it, and which processes have numbers
  // of their own (ProcessSpace); empty where the name does not say it.
  std::string_view process, space;
};

// Nothing of a name that is no IsTemporaryName.
std::optional<TemporaryParts> PartsOfTemporaryName(std::string_view name);

// Whether TemporaryName could have made it of a file of that name.
bool IsTemporaryNameOf(std::string_view temporary, std::string_view file);

// A number, in digits, that this process shares with those whose numbers
// differ from its own and that it can look for by them: those of the machine
// since it was started, or of a container there. Where the system does not tell
// that, no other process has it.
std::string ProcessSpace();

}  // namespace sluice

#endif  // SLUICE_IO_FILES_TEMPORARY_NAME_H_
