// The profile files of the AWS tools, ~/.aws/credentials and ~/.aws/config: INI
// as Python's configparser reads it for botocore. A [DEFAULT] section is one
// like others here, and names are quoted, not escaped.
#ifndef SLUICE_IO_REMOTE_S3_PROFILES_H_
#define SLUICE_IO_REMOTE_S3_PROFILES_H_

#include <map>
#include <string>
#include <string_view>

#include "engine/status.h"

namespace sluice::remote {

// Values by their names, which are in lower case.
using Options = std::map<std::string, std::string, std::less<>>;
using Sections = std::map<std::string, Options, std::less<>>;

// Lines "[section]" and, in sections, "name = value" or "name: value"; "#" and
// ";" begin comments where nothing else is before them on a line. A line that
// is indented deeper than its option goes on with the value, which then holds
// "\n". kInvalidArgument, naming `path` and the line and showing nothing of it
// (it may be a secret), for other lines and for what is there twice.
Result<Sections> ParseIni(std::string_view text, const std::string& path);

// The config file's sections of a kind by their names: "a b" of [profile "a
// b"].
Sections SectionsOf(const Sections& sections, std::string_view kind);

// The options of a value that is lines "name = value" of its own:
//   s3 =
//     addressing_style = path
// Empty for any other value. Lines that are none are left out.
Options NestedOptions(std::string_view value);

}  // namespace sluice::remote

#endif  // SLUICE_IO_REMOTE_S3_PROFILES_H_
