// What TarReader says is in an archive.
#ifndef SLUICE_TESTS_IO_RECORDS_WALKED_TAR_H_
#define SLUICE_TESTS_IO_RECORDS_WALKED_TAR_H_

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "io/records/tar.h"
#include "tests/support/fault_file_system.h"

namespace sluice::testing {

struct Member {
  std::string name;
  uint64_t offset, size;
  bool operator==(const Member&) const = default;
};

struct Walked {
  std::vector<Member> members;
  std::vector<std::string> links;
  Status error;
};

inline Walked Walk(const ReadableFile& file) {
  TarReader reader("t.tar", file);
  Walked walked;
  TarMember member;
  for (;;) {
    const auto more = reader.Next(&member);
    walked.error = more.status();
    if (!more.ok() || !*more) return walked;
    if (member.link) {
      walked.links.push_back(member.name);
      CHECK(member.size == 0);
      continue;
    }
    walked.members.push_back({member.name, member.offset, member.size});
  }
}

inline Walked Walk(std::string_view archive) {
  FaultFileSystem files;
  const auto file = files.Create("t.tar");
  REQUIRE((*file)->Append(archive).ok());
  return Walk(**files.OpenRead("t.tar"));
}

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_IO_RECORDS_WALKED_TAR_H_
