// scalars.csv: what is written is read again, here and by Python, whatever the
// names are; a file cut anywhere, resumed at any step, damaged or killed in the
// middle of it against plain lists of rows.
#include "models/train/hooks/scalar_log.h"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "io/counter_random.h"
#include "tests/support/error_text.h"
#include "tests/support/fault_file_system.h"
#include "tests/support/temporary_folder.h"

namespace sluice {
namespace {

using testing::Contains;
using testing::ErrorOf;
using testing::FaultFileSystem;
using testing::TemporaryFolder;

using Rows = std::vector<ScalarRow>;

constexpr char kHeading[] = "seconds,step,set,name,value\n";

std::string Hex(std::string_view bytes) {
  std::ostringstream text;
  text << std::hex;
  for (const char c : bytes) {
    text << static_cast<int>(static_cast<uint8_t>(c)) / 16
         << static_cast<int>(static_cast<uint8_t>(c)) % 16;
  }
  return text.str();
}

std::string Bits(double value) {
  std::ostringstream text;
  text << std::hex << std::bit_cast<uint64_t>(value);
  return std::isnan(value) ? "nan" : text.str();
}

// One line a row, equal where all of it is, bit for bit.
std::string Described(const Rows& rows) {
  std::ostringstream text;
  for (const ScalarRow& row : rows) {
    text << Bits(row.seconds) << ' ' << row.step << ' ' << Hex(row.set) << ' '
         << Hex(row.name) << ' ' << Bits(row.value) << '\n';
  }
  return text.str();
}

std::string HostileText(CounterRandom& random) {
  constexpr std::string_view kPieces[] = {
      ",",   "\"", "\n",   "\r",   "\r\n",     "\xff",  "\xef\xbb\xbf",
      "<b>", "&",  "'",    " ",    "\xc3\xa9", "loss",  "=1+1",
      "\t",  "0",  "\"\"", "1,2,", "\\",       kHeading};
  std::string text;
  for (uint32_t n = random.Below(5); n > 0; --n) {
    text += kPieces[random.Below(std::size(kPieces))];
  }
  return text;
}

double AnyDouble(CounterRandom& random) {
  using Limits = std::numeric_limits<double>;
  constexpr double kSpecial[] = {0.0,
                                 -0.0,
                                 0.1,
                                 Limits::max(),
                                 Limits::lowest(),
                                 Limits::min(),
                                 Limits::denorm_min(),
                                 Limits::quiet_NaN(),
                                 -Limits::quiet_NaN(),
                                 Limits::infinity(),
                                 -Limits::infinity()};
  if (random.Below(4) == 0) {
    return kSpecial[random.Below(std::size(kSpecial))];
  }
  return std::bit_cast<double>(uint64_t{random.Next()} << 32 | random.Next());
}

// Steps grow, by 0 too.
Rows RandomRows(size_t count, CounterRandom& random) {
  Rows rows(count);
  double seconds = 0;
  int64_t step = random.Below(2);
  for (ScalarRow& row : rows) {
    seconds += random.Below(1000) / 7.0;
    step += random.Below(3);
    row = {seconds, step, random.Below(2) ? "train" : "eval",
           HostileText(random), AnyDouble(random)};
    if (random.Below(8) == 0) row.set = HostileText(random);
  }
  return rows;
}

std::unique_ptr<ScalarLog> Open(const std::string& log_dir, int64_t step,
                                bool fresh,
                                FileSystem& files = FileSystem::Posix()) {
  return ScalarLog::Open(log_dir, step, fresh, files).ValueOrThrow();
}

void Append(ScalarLog& log, const Rows& rows) {
  for (const ScalarRow& row : rows) ThrowIfError(log.Add(row));
  ThrowIfError(log.Flush());
}

// The file of a new training, and where its heading and each row end.
struct Written {
  std::string text;
  std::vector<size_t> ends;
};
Written Write(const Rows& rows) {
  FaultFileSystem files;
  const auto log = Open("log", 0, true, files);
  Written written = {{}, {files.Size("log/scalars.csv").ValueOrThrow()}};
  for (const ScalarRow& row : rows) {
    Append(*log, {row});
    written.ends.push_back(files.Size("log/scalars.csv").ValueOrThrow());
  }
  written.text = files.Read("log/scalars.csv").ValueOrThrow();
  return written;
}

void Put(const std::string& text, FileSystem& files) {
  ThrowIfError(files.MakeDirectories("log"));
  const auto file = files.Create("log/scalars.csv").ValueOrThrow();
  ThrowIfError(file->Append(text));
}

Rows Read(FileSystem& files) {
  return ReadScalars("log", files).ValueOrThrow();
}

Rows UpTo(int64_t step, Rows rows) {
  std::erase_if(rows, [&](const ScalarRow& row) { return row.step > step; });
  return rows;
}

TEST_CASE("the text") {
  const Written written = Write({{1.25, 100, "train", "loss", 0.30481},
                                 {2, 100, "eval", "top \"5\", in %", -NAN},
                                 {2, 200, "eval", "x", -INFINITY}});
  CHECK(written.text ==
        "seconds,step,set,name,value\n"
        "1.25,100,train,loss,0.30481\n"
        "2,100,eval,\"top \"\"5\"\", in %\",nan\n"
        "2,200,eval,x,-inf\n");
}

TEST_CASE("what is written is read, bit for bit") {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    CounterRandom random(seed);
    const Rows rows = RandomRows(random.Below(20), random);
    FaultFileSystem files;
    Put(Write(rows).text, files);
    CHECK(Described(Read(files)) == Described(rows));
  }
}

TEST_CASE("Python reads the same") {
  if (std::system("python3 -c '' > /dev/null 2>&1") != 0) {
    MESSAGE("skipped: no python3");
    return;
  }
  CounterRandom random(5);
  const Rows rows = RandomRows(2000, random);
  const TemporaryFolder folder;
  Append(*Open(folder / "log", 0, true), rows);
  std::ofstream(folder / "read.py") << R"(
import csv, math, struct, sys
def bits(text):
    value = float(text)
    return 'nan' if math.isnan(value) else '%x' % struct.unpack(
        '>Q', struct.pack('>d', value))[0]
def code(text):
    return text.encode('latin-1').hex()
with open(sys.argv[1], newline='', encoding='latin-1') as file:
    rows = list(csv.reader(file, strict=True))
assert rows[0] == ['seconds', 'step', 'set', 'name', 'value']
with open(sys.argv[2], 'w') as out:
    for seconds, step, set, name, value in rows[1:]:
        print(bits(seconds), int(step), code(set), code(name), bits(value),
              file=out)
)";
  const std::string command = "python3 " + (folder / "read.py") + " " +
                              (folder / "log/scalars.csv") + " " +
                              (folder / "read");
  REQUIRE(std::system(command.c_str()) == 0);
  std::ostringstream read;
  read << std::ifstream(folder / "read").rdbuf();
  CHECK(read.str() == Described(rows));
}

TEST_CASE("a file cut anywhere has the rows before") {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    CounterRandom random(seed);
    const Rows rows = RandomRows(10, random);
    const auto [text, ends] = Write(rows);
    for (size_t cut = 0; cut <= text.size(); ++cut) {
      CAPTURE(text.substr(0, cut));
      FaultFileSystem files;
      Put(text.substr(0, cut), files);
      size_t whole = 0;
      while (whole < rows.size() && ends[whole + 1] <= cut) ++whole;
      const Rows want(rows.begin(), rows.begin() + static_cast<long>(whole));
      REQUIRE(Described(Read(files)) == Described(want));

      const auto step = static_cast<int64_t>(random.Below(20));
      const auto log = Open("log", step, false, files);
      CHECK(log->warning() == "");
      CHECK(Described(Read(files)) == Described(UpTo(step, want)));
    }
  }
}

TEST_CASE("resumed at any step") {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    CounterRandom random(seed);
    const Rows rows = RandomRows(30, random);
    const std::string text = Write(rows).text;
    for (int64_t step = 0; step <= rows.back().step + 1; ++step) {
      FaultFileSystem files;
      Put(text, files);
      const auto log = Open("log", step, false, files);
      CHECK(log->warning() == "");
      Rows want = UpTo(step, rows);
      CHECK(log->seconds() == (want.empty() ? 0 : want.back().seconds));
      // All is offered again; what was kept of the step itself is there.
      Append(*log, want);
      for (const ScalarRow& again : UpTo(step, rows)) {
        if (again.step < step) want.push_back(again);
      }
      const Rows more = {{99, step, "train", "a name of no row above", 1},
                         {99, step + 1, "eval", "loss", 2},
                         {99, step + 1, "eval", "loss", 3}};
      Append(*log, more);
      want.insert(want.end(), more.begin(), more.end());
      CHECK(Described(Read(files)) == Described(want));
    }
  }
}

TEST_CASE("a training that begins anew has a file of its own") {
  FaultFileSystem files;
  for (const std::string& before : {std::string(), std::string("no,scalars\n"),
                                    Write({{1, 0, "eval", "x", 1}}).text}) {
    Put(before, files);
    const auto log = Open("log", 0, true, files);
    CHECK(log->seconds() == 0);
    CHECK(log->warning() == "");
    CHECK(Read(files).empty());
    Append(*log, {{2, 0, "eval", "x", 5}});
    CHECK(Described(Read(files)) == Described({{2, 0, "eval", "x", 5}}));
  }
  CHECK(files.List("log").ValueOrThrow().size() == 1);
}

TEST_CASE("a folder of a training that kept no scalars yet") {
  FaultFileSystem files;
  CHECK(ReadScalars("log", files).status().code() == Code::kNotFound);
  Append(*Open("log", 7, false, files), {{1, 8, "train", "loss", 2}});
  CHECK(Read(files).size() == 1);
}

TEST_CASE("a file that a spreadsheet saved") {
  FaultFileSystem files;
  Put("\xef\xbb\xbf\"seconds\",\"step\",\"set\",\"name\",\"value\"\r\n"
      "\"1.50\",100,\"train\",\"a\nb\",1E-3\r\n\r\n2,200,eval,c,-0\r\n",
      files);
  const Rows want = {{1.5, 100, "train", "a\nb", 0.001},
                     {2, 200, "eval", "c", -0.0}};
  CHECK(Described(Read(files)) == Described(want));
  CHECK(Open("log", 100, false, files)->seconds() == 1.5);
  CHECK(Described(Read(files)) == Described({want[0]}));
}

TEST_CASE("a damaged file is named by its line and set aside") {
  struct Bad {
    std::string text;
    int line;
  };
  const std::string row = "1,2,train,loss,3\n";
  const Bad cases[] = {
      {"\n", 0},  // no row at all is none to miss
      {"x", 1},
      {row, 1},
      {"step,value\n", 1},
      {"second\n", 1},
      {kHeading + row + "1,2,train,loss\n" + row, 3},
      {kHeading + row + "1,2,train,loss,3,\n", 3},
      {kHeading + std::string("1,2,train,loss,\n"), 2},
      {kHeading + std::string("1,2,train,loss, 3\n"), 2},
      {kHeading + std::string("1,2,train,loss,3x\n"), 2},
      {kHeading + std::string("1,2,train,loss,1e999\n"), 2},
      {kHeading + std::string("1,2.5,train,loss,3\n"), 2},
      {kHeading + std::string("1,9223372036854775808,train,loss,3\n"), 2},
      {kHeading + std::string("nan,2,train,loss,3\n"), 2},
      {kHeading + std::string("inf,2,train,loss,3\n"), 2},
      {kHeading + row + std::string("1,2,train,lo\0s,3\n", 17), 3},
      {kHeading + row + "1,2,train,lo\"ss,3\n" + row, 3},
      // What opens a quote is not what a kill leaves.
      {kHeading + row + "\"1,2,train,loss,3\n" + row, 3},
      {kHeading + row + "1,\"2,train,loss,3\n" + row, 3},
      {kHeading + row + "1,2,train,loss,\"3\n" + row, 3},
      {kHeading + row + "1,2,train,loss,3,4", 3},
      {kHeading + row + "1,2\r1,2,train", 4},
  };
  for (const Bad& bad : cases) {
    CAPTURE(bad.text);
    FaultFileSystem files;
    const bool damaged = bad.line > 0;
    for (const std::string& aside :
         {std::string("log/scalars.csv.damaged"),
          std::string("log/scalars.csv.damaged-2")}) {
      Put(bad.text, files);
      const Status read = ReadScalars("log", files).status();
      CHECK(read.code() == (damaged ? Code::kDataLoss : Code::kOk));
      const auto log = Open("log", 1000, false, files);
      CHECK(log->seconds() == 0);
      CHECK(Read(files).empty());
      Append(*log, {{1, 8, "train", "loss", 2}});
      CHECK(Read(files).size() == 1);
      if (!damaged) continue;
      CHECK(Contains(read.message(), "'log/scalars.csv', line " +
                                         std::to_string(bad.line) + ":"));
      CHECK(Contains(log->warning(), read.message()));
      CHECK(Contains(log->warning(), "it is now " + aside + ","));
      CHECK(files.Read(aside).ValueOrThrow() == bad.text);
    }
  }
}

TEST_CASE("what no file can hold is not written") {
  FaultFileSystem files;
  const auto log = Open("log", 0, true, files);
  const std::string nul("a\0b", 3);
  for (const ScalarRow& row : Rows{{1, 1, "train", nul, 1},
                                   {1, 1, nul, "loss", 1},
                                   {NAN, 1, "train", "loss", 1},
                                   {INFINITY, 1, "train", "loss", 1}}) {
    CHECK(log->Add(row).code() == Code::kInvalidArgument);
  }
  Append(*log, {{1, 1, "train", "loss", 1}});
  CHECK(Read(files).size() == 1);
}

TEST_CASE("killed, or without power, at any moment of a resume") {
  CounterRandom random(3);
  const Rows rows = RandomRows(40, random);
  const int64_t step = rows[20].step;
  const Rows kept = UpTo(step, rows);
  const Rows more = {{99, step + 1, "train", "loss", 1},
                     {99, step + 1, "train", "x\ny", 1}};
  Rows whole = kept;
  whole.insert(whole.end(), more.begin(), more.end());
  for (const auto loss :
       {FaultFileSystem::Loss::kNothing, FaultFileSystem::Loss::kUnsyncedData,
        FaultFileSystem::Loss::kUnsyncedDataAndNames}) {
    bool failed = true;
    for (int operation = 1; failed; ++operation) {
      FaultFileSystem files;
      ThrowIfError(files.MakeDirectories("log"));
      ThrowIfError(files.WriteAtomically("log/scalars.csv", Write(rows).text));
      files.Restart(FaultFileSystem::Loss::kNothing);
      files.FailAt(operation, FaultFileSystem::Fault::kKill);
      const std::string error =
          ErrorOf([&] { Append(*Open("log", step, false, files), more); });
      failed = files.failed();
      CHECK((error != "(no error)") == failed);
      files.Restart(loss);
      // All as before, or what is kept and as many of the new as arrived.
      const std::string read = Described(Read(files));
      CHECK((read == Described(rows) || (read.starts_with(Described(kept)) &&
                                         Described(whole).starts_with(read))));
      const auto log = Open("log", step, false, files);
      CHECK(log->warning() == "");
      Append(*log, more);
      CHECK(Described(Read(files)) == Described(whole));
    }
  }
}

TEST_CASE("a full disk is told, again and again") {
  FaultFileSystem files;
  const auto log = Open("log", 0, true, files);
  files.FailAt(files.operations() + 1, FaultFileSystem::Fault::kDiskFull);
  const ScalarRow row = {1, 1, "train", "loss", 1};
  CHECK(log->Add(row).ok());
  CHECK(log->Flush().code() == Code::kResourceExhausted);
  CHECK(log->Add(row).code() == Code::kResourceExhausted);
  CHECK(log->Flush().code() == Code::kResourceExhausted);
  files.Restart(FaultFileSystem::Loss::kNothing);
  CHECK(Read(files).empty());
  CHECK(Open("log", 9, false, files)->warning() == "");
}

}  // namespace
}  // namespace sluice
