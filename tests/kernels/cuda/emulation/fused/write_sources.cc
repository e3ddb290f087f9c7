// Writes the generated kernels of FusedSpecs() as C++ files for the emulation,
// and the table that finds them by name:
//
//   write_fused_sources TABLE.cc KERNELS.cc...
//
// A file whose text is as before is left alone, and so is not compiled again.
#include <fmt/format.h>

#include <cstdio>
#include <fstream>
#include <map>
#include <sstream>

#include "kernels/cuda/fused/fused_source.h"
#include "tests/kernels/cuda/emulation/fused/specs.h"

namespace sluice::testing {
namespace {

// The texts by kernel name: specs that differ in size alone share one.
std::map<std::string, std::string> Sources() {
  std::map<std::string, std::string> sources;
  for (const KernelSpec& spec : FusedSpecs()) {
    const cuda::FusedWork work =
        cuda::FusedWorkOf(spec, cuda::FusedPack(spec), false).ValueOrThrow();
    cuda::FusedSource source = cuda::FusedSourceOf(work.form);
    sources[source.name] = std::move(source.text);
  }
  return sources;
}

bool Write(const std::string& path, const std::string& text) {
  std::ostringstream before;
  before << std::ifstream(path).rdbuf();
  if (before.str() == text) return true;
  return static_cast<bool>(std::ofstream(path) << text << std::flush);
}

int Main(int count, char** paths) {
  std::vector<std::string> texts(count);
  std::string declarations, entries;
  size_t next = 0;
  for (const auto& [name, text] : Sources()) {
    texts[1 + next++ % (texts.size() - 1)] += text + "\n";
    declarations += fmt::format(
        "extern \"C\" void {}(sluice::cuda::FusedArguments);\n", name);
    entries += fmt::format("      {{\"{0}\", {0}}},\n", name);
  }
  texts[0] = fmt::format(
      "#include \"tests/kernels/cuda/emulation/fused/compiled.h\"\n\n#include "
      "<map>\n\n{}\n"
      "namespace sluice::testing {{\n\n"
      "cuda::FusedKernel FindCompiledFused(const std::string& name) {{\n"
      "  static const std::map<std::string, cuda::FusedKernel> kernels = {{\n"
      "{}  }};\n"
      "  const auto it = kernels.find(name);\n"
      "  return it == kernels.end() ? nullptr : it->second;\n"
      "}}\n\n}}  // namespace sluice::testing\n",
      declarations, entries);
  for (int i = 0; i < count; ++i) {
    if (!Write(paths[i], texts[i])) {
      std::fprintf(stderr, "cannot write %s\n", paths[i]);
      return 1;
    }
  }
  return 0;
}

}  // namespace
}  // namespace sluice::testing

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: %s TABLE.cc KERNELS.cc...\n", argv[0]);
    return 2;
  }
  try {
    return sluice::testing::Main(argc - 1, argv + 1);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
