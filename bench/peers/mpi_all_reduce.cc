// All-reduces over sizes through MPI, started by mpirun. The same measurement
// as collective_bench's, which says what is timed; prints the same rows as its
// --json, but for the bytes that were sent.
#include <mpi.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

constexpr int64_t kElementBytes = sizeof(float);
constexpr int64_t kFewestRepetitions = 5;

struct Flags {
  double min = 4096, max = 100 << 20;  // bytes
  double factor = 8;
  double seconds = 1;  // of a row
};

Flags Parse(int argc, char** argv) {
  Flags flags;
  const struct {
    std::string name;
    double* value;
  } known[] = {{"--min=", &flags.min},
               {"--max=", &flags.max},
               {"--factor=", &flags.factor},
               {"--seconds=", &flags.seconds}};
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    bool found = false;
    for (const auto& flag : known) {
      if (word.rfind(flag.name, 0) != 0) continue;
      *flag.value = std::atof(word.c_str() + flag.name.size());
      found = true;
    }
    if (!found) {
      std::fprintf(stderr, "mpi_all_reduce: %s is no flag\n", word.c_str());
      std::exit(2);
    }
  }
  if (!(flags.min >= 1 && flags.factor > 1)) {
    std::fputs("mpi_all_reduce: sizes are 1 or more, the factor above 1\n",
               stderr);
    std::exit(2);
  }
  return flags;
}

std::vector<int64_t> Sizes(const Flags& flags, int processes) {
  const int64_t unit = kElementBytes * processes;
  std::vector<int64_t> sizes;
  for (double b = flags.min; b < flags.max; b *= flags.factor) {
    sizes.push_back(static_cast<int64_t>(b));
  }
  sizes.push_back(static_cast<int64_t>(flags.max));
  for (int64_t& b : sizes) b = std::max<int64_t>(b / unit, 1) * unit;
  return sizes;
}

// So small that float32 sums are exact.
float Given(int rank, int64_t i) {
  return static_cast<float>((7 * i + 5 * rank) % 11);
}

void Run(std::vector<float>& data) {
  MPI_Allreduce(MPI_IN_PLACE, data.data(), static_cast<int>(data.size()),
                MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

// In microseconds; the barrier before it is not timed.
double TimedRun(std::vector<float>& data) {
  MPI_Barrier(MPI_COMM_WORLD);
  const double begin = MPI_Wtime();
  Run(data);
  return (MPI_Wtime() - begin) * 1e6;
}

// Of one all-reduce's elements; leaves zeros, as collective_bench does.
int64_t CountWrong(std::vector<float>& data, int rank, int size) {
  int64_t i = 0, wrong = 0;
  for (float& value : data) value = Given(rank, i++);
  Run(data);
  for (i = 0; i < static_cast<int64_t>(data.size()); ++i) {
    float sum = 0;
    for (int other = 0; other < size; ++other) sum += Given(other, i);
    wrong += data[static_cast<size_t>(i)] != sum ? 1 : 0;
  }
  std::fill(data.begin(), data.end(), 0.F);
  return wrong;
}

// Rank 0's choice, after warming up.
int64_t Repetitions(std::vector<float>& data, double seconds) {
  TimedRun(data);
  const double begin = MPI_Wtime();
  for (int i = 0; i < kFewestRepetitions; ++i) TimedRun(data);
  const double each = (MPI_Wtime() - begin) / kFewestRepetitions;
  auto chosen = std::max(static_cast<int64_t>(std::min(seconds / each, 1e6)),
                         kFewestRepetitions);
  MPI_Bcast(&chosen, 1, MPI_INT64_T, 0, MPI_COMM_WORLD);
  return chosen;
}

// Whether the sums were right; rank 0 prints.
bool Measure(int64_t bytes, double seconds, int rank, int size) {
  std::vector<float> data(static_cast<size_t>(bytes / kElementBytes));
  int64_t wrong = CountWrong(data, rank, size);
  const int64_t repetitions = Repetitions(data, seconds);
  std::vector<double> times(static_cast<size_t>(repetitions));
  for (double& time : times) time = TimedRun(data);
  const auto median = times.begin() + repetitions / 2;
  std::nth_element(times.begin(), median, times.end());
  double slowest = *median;
  MPI_Allreduce(MPI_IN_PLACE, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_INT64_T, MPI_MAX, MPI_COMM_WORLD);
  if (rank != 0) return wrong == 0;
  const double gb_s = static_cast<double>(bytes) / slowest / 1e3;
  std::printf(
      "{\"size\": %lld, \"count\": %lld, \"dtype\": \"float32\", "
      "\"repetitions\": %lld, \"microseconds\": %g, "
      "\"slowest_microseconds\": %g, \"alg_gb_s\": %g, \"bus_gb_s\": %g, "
      "\"verdict\": \"%s\"}\n",
      static_cast<long long>(bytes),
      static_cast<long long>(bytes / kElementBytes),
      static_cast<long long>(repetitions), *median, slowest, gb_s,
      gb_s * 2 * (size - 1) / size, wrong == 0 ? "ok" : "WRONG");
  std::fflush(stdout);
  return wrong == 0;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, size = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const Flags flags = Parse(argc, argv);
  bool right = true;
  for (const int64_t bytes : Sizes(flags, size)) {
    right = Measure(bytes, flags.seconds, rank, size) && right;
  }
  MPI_Finalize();
  return right ? 0 : 1;
}
