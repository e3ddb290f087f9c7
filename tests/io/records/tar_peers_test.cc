// Tar archives of Python's tarfile and of GNU tar, in all their formats, as
// they say that they are; cut off ones.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>
#include <sstream>
#include <vector>

#include "io/files/file.h"
#include "tests/io/records/walked_tar.h"
#include "tests/support/error_text.h"
#include "tests/support/random_bytes.h"
#include "tests/support/temporary_folder.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using testing::Below;
using testing::Contains;
using testing::Member;
using testing::RandomBytes;
using testing::TemporaryFolder;
using testing::Walk;
using testing::Walked;

bool Runs(const char* command) {
  const bool runs =
      std::system((std::string(command) + " > /dev/null 2>&1").c_str()) == 0;
  if (!runs) MESSAGE("skipped: cannot run " << command);
  return runs;
}

std::string BytesOf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

// --- What Python writes ------------------------------------------------------

// Archives DIR/N.tar, and in DIR/N.list what tarfile finds there: of each
// member where it begins and, of regular files, where the bytes are, how many,
// and the name in hexadecimal digits.
constexpr const char* kPython = R"(
import io, os, random, sys, tarfile
folder = sys.argv[1]
FORMATS = [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]
def name(r):
    n = r.choice([1, 20, 99, 100, 101, 155, 156, r.randrange(1, 300)])
    letters = 'abcdefghij._-' + r.choice(['', ' ', '\u00e4\u4e2d'])
    text = ''.join(r.choice(letters) for _ in range(n))
    for _ in range(r.randrange(4)):
        at = r.randrange(len(text))
        text = text[:at] + '/' + text[at + 1:]
    return text.strip('/') or 'x'
for i in range(60):
    r = random.Random(i)
    kind = FORMATS[i % 3]
    path = f'{folder}/{i}.tar'
    more = {'pax_headers': {'comment': 'c' * r.randrange(900)}} \
        if kind == tarfile.PAX_FORMAT and r.random() < .5 else {}
    with tarfile.open(path, 'w', format=kind, **more) as t:
        for _ in range(r.randrange(14)):
            info = tarfile.TarInfo(name(r))
            info.type = r.choice([tarfile.REGTYPE] * 7 + [
                tarfile.AREGTYPE, tarfile.CONTTYPE, tarfile.DIRTYPE,
                tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE])
            info.mtime = r.choice([0, 1.5, 2 ** 34])
            info.uid = r.choice([0, 2 ** 22])
            if kind == tarfile.USTAR_FORMAT: info.mtime = info.uid = 0
            if info.type in (tarfile.SYMTYPE, tarfile.LNKTYPE):
                info.linkname = name(r)
            data = b''
            if info.isreg():
                n = r.choice([0, 1, 511, 512, 513, r.randrange(3000),
                              r.randrange(100000)])
                data = r.randbytes(n)
            info.size = len(data)
            try: t.addfile(info, io.BytesIO(data))
            except ValueError: pass  # too long a name for ustar
    with tarfile.open(path) as t, open(f'{folder}/{i}.list', 'w') as out:
        for m in t:
            out.write(f'{m.offset} ')
            if m.issym() or m.islnk(): out.write('link')
            if m.isreg():
                hexed = m.name.encode('utf-8', 'surrogateescape').hex()
                out.write(f'{m.offset_data} {m.size} {hexed}')
            out.write('\n')
)";

struct Listed {
  std::vector<Member> members;
  std::set<uint64_t> begins;  // of members of any kind
  size_t links = 0;
};

Listed ReadListing(const std::string& path) {
  Listed listed;
  std::ifstream lines(path);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    uint64_t begin = 0;
    Member member = {};
    std::string name;
    words >> begin;
    listed.begins.insert(begin);
    listed.links += line.ends_with("link") ? 1 : 0;
    if (!(words >> member.offset >> member.size >> name)) continue;
    for (size_t i = 0; i < name.size(); i += 2) {
      member.name +=
          static_cast<char>(std::stoi(name.substr(i, 2), nullptr, 16));
    }
    listed.members.push_back(member);
  }
  return listed;
}

// Behind all of a member.
uint64_t EndOf(const Member& member) {
  return member.offset + (member.size + 511) / 512 * 512;
}

// The members that are whole are found; that more were there is noticed, but
// for whole ones.
void CheckCut(const std::string& archive, const Listed& listed, size_t n) {
  CAPTURE(n);
  const Walked walked = Walk(std::string_view(archive).substr(0, n));
  const auto whole =
      std::find_if(listed.members.begin(), listed.members.end(),
                   [&](const Member& member) { return EndOf(member) > n; });
  CHECK(walked.members == std::vector<Member>(listed.members.begin(), whole));
  // Where the zeros begin of which the first block ends the archive.
  const size_t end = (archive.find_last_not_of('\0') + 512) / 512 * 512;
  const bool at_end = n > end + 512;
  const bool between = n > 0 && listed.begins.contains(n);
  if (!walked.error.ok()) {
    CHECK(walked.error.code() == Code::kDataLoss);
    CHECK(walked.error.message().starts_with("'t.tar', byte "));
    CHECK(!between);
    CHECK(!at_end);
  } else if (!at_end && !between) {
    // Only zeros were cut off: padding and the end.
    CHECK(n % 512 == 0);
    CHECK(whole == listed.members.end());
  }
}

TEST_CASE("archives of Python's tarfile, whole and cut off anywhere") {
  if (!Runs("python3 -c 'import tarfile, random; random.randbytes(1)'")) return;
  const TemporaryFolder folder;
  std::ofstream(folder / "make.py") << kPython;
  const std::string command =
      fmt::format("python3 {} {}", folder / "make.py", folder.path());
  REQUIRE(std::system(command.c_str()) == 0);
  size_t members = 0, links = 0;
  std::mt19937 random(1);
  for (int i = 0; i < 60; ++i) {
    CAPTURE(i);
    const std::string path = folder / fmt::format("{}.tar", i);
    const Listed listed = ReadListing(folder / fmt::format("{}.list", i));
    const Walked walked = Walk(**FileSystem::Posix().OpenRead(path));
    REQUIRE_MESSAGE(walked.error.ok(), walked.error.message());
    CHECK(walked.members == listed.members);
    CHECK(walked.links.size() == listed.links);
    members += listed.members.size();
    links += listed.links;
    const std::string archive = BytesOf(path);
    for (int k = 0; k < 20; ++k) {
      CheckCut(archive, listed, Below(random, archive.size()));
    }
    // Every block, and the bytes around it, of those that are not large.
    if (archive.size() > 40'000) continue;
    for (size_t n = 0; n <= archive.size(); n += 512) {
      CheckCut(archive, listed, n);
      CheckCut(archive, listed, n + 1 < archive.size() ? n + 1 : n);
    }
  }
  CHECK(members > 200);
  CHECK(links > 40);
}

// --- What GNU tar writes -----------------------------------------------------

TEST_CASE("archives of GNU tar") {
  if (!Runs("tar --version | grep -q GNU")) return;
  const TemporaryFolder folder;
  std::mt19937 random(2);
  const std::string root = folder / "root";
  std::set<std::string> names;
  for (size_t length : {1, 40, 98, 99, 100, 101, 140, 250}) {
    for (const char* sub : {"", "sub/"}) {
      const std::string name = sub + std::string(length, 'n');
      const fs::path path = fs::path(root) / name;
      fs::create_directories(path.parent_path());
      std::ofstream(path, std::ios::binary)
          << RandomBytes(random, Below(random, 5000));
      names.insert(name);
    }
  }
  fs::create_symlink(std::string(150, 't'), root + "/link");
  fs::create_hard_link(root + "/n", root + "/o");
  for (const char* format : {"v7", "oldgnu", "gnu", "ustar", "posix"}) {
    CAPTURE(format);
    const std::string path = folder / format;
    // The older ones leave out what has too long a name.
    (void)std::system(fmt::format("tar -c -f {} -C {} --format={} . 2> {}/err",
                                  path, root, format, folder.path())
                          .c_str());
    const Walked walked = Walk(**FileSystem::Posix().OpenRead(path));
    REQUIRE_MESSAGE(walked.error.ok(), walked.error.message());
    const std::string archive = BytesOf(path);
    std::set<std::string> found;
    for (const Member& member : walked.members) {
      std::string name = member.name.substr(2);  // "./"
      if (name == "o") name = "n";  // the one that was packed first
      found.insert(name);
      CHECK(archive.substr(member.offset, member.size) ==
            BytesOf(fs::path(root) / name));
    }
    // The hard link, and the symbolic one where its target is not too long.
    const auto linked = [&](const char* name) {
      return std::count(walked.links.begin(), walked.links.end(), name) == 1;
    };
    CHECK(linked("./n") != linked("./o"));
    const std::set<std::string> with_any_name = {"oldgnu", "gnu", "posix"};
    if (with_any_name.contains(format)) {
      CHECK(found == names);
      CHECK(linked("./link"));
    }
    CHECK(found.size() >= 5);
    CHECK(
        std::includes(names.begin(), names.end(), found.begin(), found.end()));
  }
  // A file with a hole.
  std::ofstream(root + "/hole") << "x";
  fs::resize_file(root + "/hole", 1 << 20);
  for (const char* format : {"gnu", "posix"}) {
    const std::string path = folder / "sparse";
    REQUIRE(std::system(fmt::format("tar -c -S -f {} -C {} --format={} hole",
                                    path, root, format)
                            .c_str()) == 0);
    const Status error = Walk(**FileSystem::Posix().OpenRead(path)).error;
    CHECK(error.code() == Code::kUnimplemented);
    CHECK(Contains(error.message(), "is a sparse file"));
  }
}

// --- Headers one by one ------------------------------------------------------

}  // namespace
}  // namespace sluice
