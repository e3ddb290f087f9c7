// Paths with a scheme, where any path is wanted.
#include "io/remote/register.h"

#include <doctest/doctest.h>

#include <cstdlib>

#include "io/files/file.h"
#include "io/files/file_version.h"
#include "io/files/path_kind.h"
#include "io/remote/unavailable_files.h"
#include "tests/support/error_text.h"
#if defined(SLUICE_HAVE_CURL) && defined(SLUICE_HAVE_CRYPTO) && \
    defined(SLUICE_HAVE_EXPAT)
#define SLUICE_HAVE_REMOTE 1
#include "tests/support/object_store.h"
#endif

namespace sluice {
namespace {

using testing::Contains;

TEST_CASE("remote files: what a build lacks is one error of every call") {
  remote::UnavailableFiles files(Unimplemented("no such library"));
  const std::string path = "https://host/x?sig=hush";
  const std::vector<Status> errors = {
      files.Read(path).status(),
      files.OpenRead(path).status(),
      files.Size(path).status(),
      files.Version(path).status(),
      files.Create(path).status(),
      files.OpenAppend(path).status(),
      files.Rename(path, path),
      files.Remove(path),
      files.SyncDirectory(path),
      files.List(path).status(),
      files.Exists(path).status(),
      files.Lock(path, "").status(),
      files.MakeDirectories(path),
      static_cast<FileSystem&>(files).WriteAtomically(path, "x"),
  };
  for (const Status& error : errors) {
    CHECK(error.code() == Code::kUnimplemented);
    CHECK(Contains(error.message(), "'https://host/x"));
    CHECK(Contains(error.message(), "no such library"));
    CHECK(error.message().find("hush") == std::string::npos);
  }
}

TEST_CASE("remote files: registered once, paths lead there") {
  RegisterRemoteFiles();
  RegisterRemoteFiles();
  FileSystem& files = FileSystem::Default();
  const Status missing = files.Read("ftp://host/x").status();
  CHECK(missing.code() == Code::kUnimplemented);
#ifdef SLUICE_HAVE_REMOTE
  testing::ObjectStore store;
  const auto environment = store.environment();
  for (const char* name :
       {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN",
        "AWS_REGION", "AWS_ENDPOINT_URL_S3"}) {
    setenv(name, environment(name)->c_str(), 1);
  }
  unsetenv("AWS_PROFILE");
  unsetenv("SLUICE_S3_ANONYMOUS");
  REQUIRE(files.WriteAtomically("s3://b/dir/k", "bytes").ok());
  CHECK(*files.Read("s3://b/dir/k") == "bytes");
  CHECK(*files.List("s3://b/dir") == std::vector<std::string>{"k"});
  const auto version = FileVersion("s3://b/dir/k");
  REQUIRE(version.ok());
  CHECK(*version == *FileVersion("s3://b/dir/k"));
  CHECK(files.OpenRead("s3://b/dir/k").ValueOrThrow()->version() == *version);
  REQUIRE(files.WriteAtomically("s3://b/dir/k", "other").ok());
  CHECK(*version != *FileVersion("s3://b/dir/k"));
  CHECK(FileVersion("s3://b/none").status().code() == Code::kNotFound);
  CHECK(*IsFolder("s3://b/dir"));
  CHECK(!*IsFolder("s3://b/dir/k"));
  CHECK(!*IsFolder("s3://b/none"));
  const std::string url = store.server().url();
  // Not signed, so refused; but asked.
  CHECK(files.Read(url + "/b/dir/k").status().code() ==
        Code::kFailedPrecondition);
#else
  CHECK(files.Read("s3://b/k").status().code() == Code::kUnimplemented);
#endif
}

}  // namespace
}  // namespace sluice
