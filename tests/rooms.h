// The rooms of the house, and which may use which (layering_test.cc).
#ifndef SLUICE_TESTS_ROOMS_H_
#define SLUICE_TESTS_ROOMS_H_

#include <map>
#include <set>
#include <string>
#include <utility>

namespace sluice::testing {

// The rooms, lowest first, and what each may use beside itself; "engine/*" is
// the folder and its rooms. The longest matching prefix of a path decides.
using Rooms = std::map<std::string, std::set<std::string>>;
inline const Rooms& MayUse() {
  static const Rooms* const rooms = [] {
    auto* all = new Rooms;
    const auto add = [&](const std::string& folder, const char* room,
                         std::set<std::string> may) {
      (*all)[room[0] == '\0' ? folder : folder + "/" + room] = std::move(may);
    };
    add("engine", "", {});
    add("engine", "text", {"engine"});
    add("engine", "semantics", {"engine"});
    add("engine", "runtime", {"engine", "engine/text", "engine/semantics"});

    const std::string cpu = "kernels/cpu";
    add(cpu, "simd", {"engine", "engine/semantics"});
    for (const char* room :
         {"array", "elementwise", "gemm", "norm", "onednn", "reduce"}) {
      add(cpu, room, {"engine/*", cpu, cpu + "/simd"});
    }
    add(cpu, "conv", {"engine/*", cpu, cpu + "/simd", cpu + "/gemm"});
    add(cpu, "fused", {"engine/*", cpu, cpu + "/simd", cpu + "/elementwise"});
    add(cpu, "", {"engine/*", cpu + "/*"});  // registers all

    const std::string cuda = "kernels/cuda";
    const std::string runtime = cuda + "/runtime", device = cuda + "/device";
    add(cuda, "runtime", {"engine/*"});
    add(cuda, "device", {"engine/*", runtime});
    const std::string ops = cuda + "/ops";
    add(cuda, "ops", {"engine/*", runtime, device});
    // Each may use those before.
    std::set<std::string> kernels = {"engine/*", runtime, device};
    for (const char* room :
         {"elementwise", "array", "rows", "reduce", "gemm", "norm", "conv"}) {
      add(ops, room, kernels);
      kernels.insert(std::string(ops).append("/").append(room));
    }
    add(cuda, "fused", {"engine/*", runtime, device});
    add(cuda, "vendor",
        {"engine/*", runtime, device, ops + "/*", cuda + "/fused"});
    add(cuda, "", {"engine/*", cuda + "/*"});

    add("graph", "", {"engine/*", "graph/ops"});  // builder.h, autograd
    add("graph", "ops", {"engine", "engine/semantics", "graph"});
    add("graph", "text", {"engine/*", "graph"});
    add("graph", "passes", {"engine/*", "graph", "graph/ops"});
    add("graph", "compile",
        {"engine/*", "graph", "graph/ops", "graph/text", "graph/passes"});
    add("graph", "session", {"engine/*", "graph/*"});

    add("io", "", {"engine/*"});  // what an example is
    // From here on each may use those before.
    std::set<std::string> data = {"engine/*", "graph/*", "io"};
    for (const char* room :
         {"files", "remote/http", "remote/objects", "remote/s3", "remote",
          "checkpoints", "cache", "pipeline", "images", "summaries", "sources",
          "records"}) {
      add("io", room, data);
      data.insert(std::string("io/") + room);
    }
    add("dist", "net", {"engine"});
    add("dist", "membership", {"engine", "dist", "dist/net"});
    add("dist", "collective",
        {"engine", "engine/runtime", "dist", "dist/net", "dist/membership"});
    add("dist", "mpi/module", {"dist/mpi"});
    const std::set<std::string> below = {"engine/*", "graph/*", "io/*",
                                         "dist/*"};
    for (const char* room :
         {"rendezvous", "cluster", "servers", "mpi", "nccl", ""}) {
      add("dist", room, below);
    }

    const auto model = [&](const char* room, std::set<std::string> may) {
      may.insert(below.begin(), below.end());
      add("models", room, std::move(may));
    };
    model("", {});
    model("nn", {"models"});
    model("optim", {"models"});
    model("zoo", {"models", "models/nn"});
    std::set<std::string> training = {"models", "models/nn", "models/optim"};
    for (const char* room : {"/values", "/workers", "/run", "/hooks", ""}) {
      const std::string folder = std::string("train").append(room);
      model(folder.c_str(), training);
      training.insert("models/" + folder);
    }
    model("report", {"models", "models/train/*"});
    model("cli", {"models/*"});
    return all;
  }();
  return *rooms;
}

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_ROOMS_H_
