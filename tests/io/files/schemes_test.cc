#include "io/files/schemes.h"

#include <doctest/doctest.h>

#include <string>

#include "io/files/file.h"
#include "tests/support/fault_file_system.h"
#include "tests/support/temporary_folder.h"

namespace sluice {
namespace {

using testing::FaultFileSystem;

TEST_CASE("a scheme is what RFC 3986 calls one, before ://") {
  CHECK(SchemeOf("s3://bucket/key") == "s3");
  CHECK(SchemeOf("a+b-c.1://x") == "a+b-c.1");
  CHECK(SchemeOf("HTTPS://") == "HTTPS");
  for (const char* path :
       {"", "/", "a", "/s3://b", "./s3://b", "s3:/b", "s3:b", "://b", "1a://b",
        "a b://c", "a/b://c", "\xc3\xa4://b"}) {
    CAPTURE(path);
    CHECK(SchemeOf(path).empty());
  }
}

TEST_CASE("each path goes to the file system of its scheme") {
  static FaultFileSystem memory;  // as long as the process
  RegisterScheme("memory", memory);
  FileSystem& files = FileSystem::Default();
  CHECK(files.MakeDirectories("memory://folder").ok());
  CHECK(files.WriteAtomically("memory://folder/a", "text").ok());
  CHECK(memory.Read("memory://folder/a").ValueOrThrow() == "text");
  CHECK(files.Read("memory://folder/a").ValueOrThrow() == "text");
  CHECK(files.Size("memory://folder/a").ValueOrThrow() == 4);
  CHECK(*files.Exists("memory://folder/a"));
  CHECK(files.List("memory://folder").ValueOrThrow().size() == 1);
  CHECK(files.Rename("memory://folder/a", "memory://folder/b").ok());
  CHECK(files.Remove("memory://folder/b").ok());
  CHECK(!*memory.Exists("memory://folder/b"));

  const testing::TemporaryFolder folder;
  const std::string path = folder.path() + "/a";
  CHECK(files.WriteAtomically(path, "here").ok());
  CHECK(FileSystem::Posix().Read(path).ValueOrThrow() == "here");
  const Status across = files.Rename(path, "memory://folder/a");
  CHECK(across.code() == Code::kInvalidArgument);
  CHECK(across.message().find("another file system") != std::string::npos);
}

TEST_CASE("a scheme that nobody registered is an error of every call") {
  FileSystem& files = FileSystem::Default();
  const std::string path = "nobody://folder/a?signature=secret";
  const auto refused = [](const Status& status) {
    CAPTURE(status.message());
    return status.code() == Code::kUnimplemented &&
           status.message().find("nobody://") != std::string::npos &&
           status.message().find("secret") == std::string::npos;
  };
  CHECK(refused(files.Read(path).status()));
  CHECK(refused(files.OpenRead(path).status()));
  CHECK(refused(files.Size(path).status()));
  CHECK(refused(files.Create(path).status()));
  CHECK(refused(files.OpenAppend(path).status()));
  CHECK(refused(files.Rename(path, path)));
  CHECK(refused(files.Remove(path)));
  CHECK(refused(files.SyncDirectory(path)));
  CHECK(refused(files.List(path).status()));
  CHECK(refused(files.Lock(path, "me").status()));
  CHECK(refused(files.MakeDirectories(path)));
  CHECK(refused(files.WriteAtomically(path, "text")));
  CHECK(refused(files.Exists(path).status()));
}

}  // namespace
}  // namespace sluice
