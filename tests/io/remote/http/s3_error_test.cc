// What servers say behind a status that is no success.
#include "io/remote/http/s3_error.h"

#include <doctest/doctest.h>

#include <string>

namespace sluice::remote {
namespace {

#ifdef SLUICE_HAVE_EXPAT

TEST_CASE("an error's code and message") {
  CHECK(ParseS3Error("<?xml version=\"1.0\" encoding=\"UTF-8\"?><Error><Code>"
                     "NoSuchKey</Code><Message>The resource you requested "
                     "does not exist</Message><Resource>/b/k</Resource>"
                     "</Error>") ==
        S3Error{"NoSuchKey", "The resource you requested does not exist"});
  // Elements of elements are others'.
  CHECK(ParseS3Error("<Error><A><Code>x</Code></A></Error>") == S3Error{});
  // In one line, however it was written.
  CHECK(ParseS3Error("<Error><Code> A\n</Code><Message>\na\nb\t&#x7f;"
                     "</Message></Error>") == S3Error{"A", "a b\\x09\\x7f"});
  const std::string long_message(1000, 'm');
  CHECK(ParseS3Error("<Error><Message>" + long_message + "</Message></Error>")
            .message == long_message.substr(0, 200) + "...");
  // What was said before the cut.
  CHECK(ParseS3Error("<Error><Code>SlowDown</Code><Mess") ==
        S3Error{"SlowDown", ""});
  for (const char* body :
       {"", "Bad Gateway", "<html><body>502</body></html>",
        "<!DOCTYPE html><html><Code>x</Code></html>",
        "<Errors><Code>x</Code></Errors>", "{\"Code\": \"x\"}"}) {
    CHECK(ParseS3Error(body) == S3Error{});
  }
}

#else

TEST_CASE("without expat an error has its status alone") {
  CHECK(ParseS3Error("<Error><Code>a</Code></Error>") == S3Error{});
}

#endif

}  // namespace
}  // namespace sluice::remote
