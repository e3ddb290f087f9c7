// What a folder of an object store holds, with and without names in it.
#if defined(SLUICE_HAVE_CURL) && defined(SLUICE_HAVE_CRYPTO) && \
    defined(SLUICE_HAVE_EXPAT)
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tests/support/remote_files.h"

namespace sluice::remote {
namespace {

using Names = std::vector<std::string>;
using sluice::testing::RemoteFiles;

TEST_CASE("s3: one listing says what is in a folder and what it leaves out") {
  for (const size_t page : {1, 3, 1000}) {
    CAPTURE(page);
    RemoteFiles remote;
    remote.store.SetPage(page);
    for (const char* key : {"odd/", "odd//x", "odd/y", "odd/y/z", "odd/sub/x",
                            "plain/a", "plain/b/c"}) {
      remote.store.Put(key, "x");
    }
    const auto odd = remote.files.ListAll("s3://b/odd").ValueOrThrow();
    CHECK(odd.names == Names{"sub", "y"});
    CHECK(odd.left_out ==
          Names{"s3://b/odd/", "s3://b/odd//", "s3://b/odd/y/"});
    CHECK(*remote.files.List("s3://b/odd") == odd.names);
    remote.store.ResetCounts();
    const auto plain = remote.files.ListAll("s3://b/plain").ValueOrThrow();
    CHECK(remote.store.Count("LIST") == (page == 1 ? 2 : 1));
    CHECK(plain.names == Names{"a", "b"});
    CHECK(plain.left_out == Names());
    const auto none = remote.files.ListAll("s3://b/none").ValueOrThrow();
    CHECK(none.names == Names());
    CHECK(none.left_out == Names());
    CHECK(remote.files.ListAll("s3://none").status().code() == Code::kNotFound);
  }
}

}  // namespace
}  // namespace sluice::remote

#endif
