// The commands of `sluice data`, on TFRecord files, tar archives and what they
// are made from. Each prints its results on stdout, how far it is on stderr
// every ten seconds, and throws Error. At least one thread; results do not
// depend on how many.
#ifndef SLUICE_APPS_SLUICE_DATA_DATA_H_
#define SLUICE_APPS_SLUICE_DATA_DATA_H_

#include <cstdint>
#include <string>
#include <vector>

namespace sluice::tool {

struct MakeDataOptions {
  std::string from;  // a folder, as ListImages reads it, or an IsImageTable
  std::string out;
  std::string part = "train";
  int64_t shards = 0;  // 0: by size
  int64_t resize = 0;  // the shorter side's most pixels; 0: any
  int threads = 1;
  bool json = false;
};
// Writes pictures as shards of image records, or those of them
// that an earlier run did not come to. Where pictures begin like no image it
// names them on stderr and writes nothing. A picture that was changed in place
// since an earlier run, to one of the same size, is not noticed.
void MakeData(const MakeDataOptions& options);

struct CopyDataOptions {
  std::string from, to;
  bool check = false;
  bool dry_run = false;
  int threads = 1;
  bool json = false;
};
// Copies a file or a folder, on any file systems, but for files that are there
// already: of the same size and not older, with `check` of the same bytes.
// Files appear whole or not at all. Says on stderr (`json`: on stdout) what
// could not be copied, and returns whether there was nothing of that kind.
bool CopyData(const CopyDataOptions& options);

// Prints the features of the first records of a file, or of a folder's first
// part; of tar archives the files of the first samples.
void ShowData(const std::string& path, int64_t records, bool json);

// Looks at every record of files and folders, and prints which are bad and in
// which folders records are missing. Returns whether there are no such.
bool CheckData(const std::vector<std::string>& paths, int threads, bool json);

struct BenchDataOptions {
  std::string path;  // file or folder of shards, or folder of pictures
  std::string part = "train";
  int64_t size = 224;  // pixels of a side
  int64_t batch = 64;  // pictures
  double seconds = 2;  // of each stage
  int threads = 1;
  bool json = false;
};
// Measures how many pictures a second each stage of an input pipeline and those
// before it make together, and prints it. Unlike the others it depends on the
// machine and on how many threads there are.
void BenchData(const BenchDataOptions& options);

// Prints what the pictures of a part are like.
void PrintDataStatistics(const std::string& folder, const std::string& part,
                         int threads, bool json);

}  // namespace sluice::tool

#endif  // SLUICE_APPS_SLUICE_DATA_DATA_H_
