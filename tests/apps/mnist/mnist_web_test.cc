// The mnist program on files of a web server, which cannot be listed: the bits
// that local files give, though the server fails now and then; and what is not
// there.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>

#include "engine/tensor.h"
#include "io/images/png.h"
#include "tests/support/http_server.h"
#include "tests/support/mnist_program.h"
#include "tests/support/same_bits.h"
#include "tests/support/temporary_folder.h"

namespace sluice {
namespace {

using testing::CheckMnistError;
using testing::HttpServer;
using testing::MnistData;
using testing::Outcome;
using testing::RunMnist;
using testing::SameBits;
using testing::ServedAnswer;
using testing::ServedRequest;
using testing::TemporaryFolder;
using testing::TextOf;

// A file of MnistData, or the part of it that is asked for.
ServedAnswer Serve(const ServedRequest& request) {
  const std::string kFolder = "/digits/";
  const std::string name =
      request.target.substr(std::min(kFolder.size(), request.target.size()));
  if (!request.target.starts_with(kFolder) || name.empty() ||
      !std::filesystem::exists(MnistData() / name)) {
    return {.status = 404};
  }
  ServedAnswer answer{.body = TextOf(MnistData() / name)};
  answer.headers["ETag"] = fmt::format("\"{}\"", name);
  const std::string range = request.Header("range");
  if (range.empty()) return answer;
  const size_t dash = range.find('-');
  const size_t size = answer.body.size();
  const size_t first = std::stoul(range.substr(6, dash - 6));
  if (first >= size) return {.status = 416};
  const std::string end = range.substr(dash + 1);
  const size_t last = std::min(end.empty() ? size : std::stoul(end), size - 1);
  answer.status = 206;
  answer.body = answer.body.substr(first, last - first + 1);
  answer.headers["Content-Range"] =
      fmt::format("bytes {}-{}/{}", first, last, size);
  return answer;
}

Outcome Train(const std::string& data, const std::string& log) {
  return RunMnist({"train", "--data-dir", data, "--model", "mlp", "--steps",
                   "12", "--threads", "1", "--deterministic", "--log-dir",
                   log});
}

TEST_CASE("digits of a web server are trained on as those of a folder") {
  std::atomic<int> asked = 0;
  const HttpServer server([&](const ServedRequest& request) -> ServedAnswer {
    if (++asked % 5 == 3) return {.status = 503};
    return Serve(request);
  });
  const TemporaryFolder folder;
  const std::string url = server.url() + "/digits";
  const Outcome remote = Train(url, folder / "remote");
  CHECK_MESSAGE(remote.code == 0, remote.err);
  CHECK(server.requests() > 4);
  const Outcome local = Train(MnistData().path(), folder / "local");
  CHECK_MESSAGE(local.code == 0, local.err);
  CHECK(SameBits(folder / "remote", folder / "local", 12));
  CheckMnistError(Train(server.url() + "/nothing", folder / "none"), 1,
                  server.url() + "/nothing");
}

#if SLUICE_HAVE_PNG
TEST_CASE("a picture whose length a web server does not say is predicted") {
  const std::string png =
      EncodePng(Tensor::Full(DType::kUInt8, {28, 28, 3}, 200)).ValueOrThrow();
  const HttpServer server([&](const ServedRequest& request) -> ServedAnswer {
    if (request.target != "/digit.png") return {.status = 404};
    return {.body = png, .no_length = true};
  });
  const TemporaryFolder folder;
  REQUIRE(RunMnist(testing::OnMnist(
                       "train", {"--steps", "2", "--log-dir", folder / "log"}))
              .code == 0);
  const auto predict = [&](const std::string& file) {
    const Outcome outcome =
        RunMnist({"predict", "--log-dir", folder / "log", "--csv", file});
    CHECK_MESSAGE(outcome.code == 0, outcome.err);
    return testing::CsvRowsOf(file, outcome.out);
  };
  const std::string local = folder / "digit.png";
  std::ofstream(local, std::ios::binary) << png;
  const auto wanted = predict(local);
  CHECK(wanted.size() == 5);
  CHECK(predict(server.url() + "/digit.png") == wanted);
}
#endif

}  // namespace
}  // namespace sluice
