// Where objects are: in the host's name or the path, at Amazon or elsewhere.
#include "io/remote/s3/s3_address.h"

#include <doctest/doctest.h>

#include <string>

namespace sluice::remote {
namespace {

std::string Address(const std::string& endpoint, const std::string& bucket,
                    const std::string& key,
                    Addressing addressing = Addressing::kAuto,
                    const std::string& region = "us-east-1") {
  const S3Settings settings = {{}, region, endpoint, addressing};
  return AddressOf(settings, {bucket, key}).ValueOrThrow().ToString();
}

TEST_CASE("at Amazon the bucket is in the host's name where it can be") {
  CHECK(Address("", "bucket", "a/b") ==
        "https://bucket.s3.us-east-1.amazonaws.com/a/b");
  CHECK(Address("", "bucket", "") ==
        "https://bucket.s3.us-east-1.amazonaws.com/");
  CHECK(Address("", "bucket", "k", Addressing::kPath) ==
        "https://s3.us-east-1.amazonaws.com/bucket/k");
  CHECK(Address("", "bucket", "k", Addressing::kAuto, "cn-north-1") ==
        "https://bucket.s3.cn-north-1.amazonaws.com.cn/k");
  for (const char* bucket : {"a.b", "UPPER", "under_score", "ab", "abc-"}) {
    CHECK(Address("", bucket, "k") ==
          "https://s3.us-east-1.amazonaws.com/" + std::string(bucket) + "/k");
  }
  CHECK(Address("", "a.b", "k", Addressing::kVirtual) ==
        "https://a.b.s3.us-east-1.amazonaws.com/k");
  CHECK(Address("", "UPPER", "k", Addressing::kVirtual) ==
        "https://s3.us-east-1.amazonaws.com/UPPER/k");
}

TEST_CASE("elsewhere it is in the path, unless asked for") {
  CHECK(Address("http://minio:9000", "bucket", "k") ==
        "http://minio:9000/bucket/k");
  CHECK(Address("http://minio:9000/", "bucket", "") ==
        "http://minio:9000/bucket");
  CHECK(Address("https://obs.example.com", "bucket", "k",
                Addressing::kVirtual) == "https://bucket.obs.example.com/k");
  CHECK(Address("https://gate/s3%20x//", "bucket", "k") ==
        "https://gate/s3%20x/bucket/k");
  for (const char* host : {"127.0.0.1:9000", "[::1]:9000"}) {
    const std::string endpoint = "http://" + std::string(host);
    CHECK(Address(endpoint, "bucket", "k", Addressing::kVirtual) ==
          endpoint + "/bucket/k");
  }
}

TEST_CASE("keys stay as they are, and are encoded once") {
  const S3Address address =
      AddressOf({{}, "r", "http://h"}, {"bucket", "a//../%41 +/\xc3\xa9"})
          .ValueOrThrow();
  CHECK(address.scheme == "http");
  CHECK(address.host == "h");
  CHECK(address.path == "/bucket/a//../%41 +/\xc3\xa9");
  CHECK(address.ToString() == "http://h/bucket/a//../%2541%20%2B/%C3%A9");
  CHECK(Address("http://h", "bucket", "/k") == "http://h/bucket//k");
}

TEST_CASE("an endpoint is an address") {
  const auto message = [](const std::string& endpoint) {
    const Status status =
        AddressOf({{}, "r", endpoint}, {"bucket", "k"}).status();
    CHECK(status.code() == Code::kInvalidArgument);
    CHECK(status.message().find("SECRET") == std::string::npos);
    return status.message();
  };
  CHECK(message("minio:9000") ==
        "the S3 endpoint: an address begins with https:// or http://, got "
        "none of them");
  CHECK(message("http://h/?a=SECRET") ==
        "the S3 endpoint http://h/ has a query, which no endpoint has");
  CHECK(message("http://u:SECRET@h") ==
        "the S3 endpoint: http://h: an address must hold no user name and no "
        "password");
  CHECK(message("http://h/%zz").find("hexadecimal") != std::string::npos);
}

}  // namespace
}  // namespace sluice::remote
