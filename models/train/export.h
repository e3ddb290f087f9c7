// Exported models: an inference graph and its weights in one folder, run
// without the source that made them.
//
//   graph.txt            the graph (graph/text/text.h), what the outputs need
//   weights.safetensors  the variables by name
//   model.json           {"format": "sluice.model", "version": 1,
//                         "program": NAME, "step": N,
//                         "class_names": [NAME, ...] where they are known,
//                         "flags": {NAME: VALUE, ...} where there are any,
//                         "inputs": {NAME: {"dtype": "float32",
//                                           "shape": [-1, 28, 28, 1]}},
//                         "outputs": {NAME: {"tensor": "probabilities", ...}},
//                         "graph": FILE, "weights": FILE
//                           where these are called otherwise}
//   export.lock          held by who writes there (kExportLock)
#ifndef SLUICE_MODELS_TRAIN_EXPORT_H_
#define SLUICE_MODELS_TRAIN_EXPORT_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/visibility.h"
#include "graph/session/session.h"
#include "io/example.h"
#include "models/train/run/inference.h"

namespace SLUICE_PUBLIC sluice {

struct ExportInfo {
  std::string program;
  int64_t step = 0;  // of the training that the variables come from
  std::vector<std::string> class_names = {};
  // The program's flags that say how to read data to predict for
  // (Flag::of_reading).
  std::map<std::string, std::string> flags = {};
};

// The lock in the folder, held while somebody writes there. Its file stays.
inline constexpr char kExportLock[] = "export.lock";

// Creates the folder; each file is written atomically, model.json last. Where
// the folder has a model already, it, or this one, is there at any instant,
// also after an error; that writes the files twice. Throws Error:
// kFailedPrecondition while somebody else exports into the folder.
void ExportModel(const Inference& inference, const ExportInfo& info,
                 const std::string& directory);

// One thread at a time.
class ExportedModel {
 public:
  ~ExportedModel();

  // The outputs for a batch of the inputs; other tensors in it are ignored.
  // The first dimensions must agree. Throws Error naming what is missing or
  // does not fit, or an output that has not one row per example.
  Example Predict(const Example& batch);

  // The inputs and outputs by name; the first dimension is kUnknown.
  const std::map<std::string, TensorType>& inputs() const { return inputs_; }
  const std::map<std::string, TensorType>& outputs() const { return outputs_; }
  const ExportInfo& info() const { return info_; }

 private:
  friend std::unique_ptr<ExportedModel> LoadExported(
      const std::string& directory, const SessionOptions& options);
  ExportedModel() = default;

  ExportInfo info_;
  std::unique_ptr<Graph> graph_;
  std::unique_ptr<Session> session_;
  std::map<std::string, TensorType> inputs_, outputs_;
  std::vector<Output> placeholders_, fetches_;  // in the order of the maps
};

// Reads the ExportInfo of a folder that ExportModel wrote. Throws Error as
// LoadExported does.
ExportInfo ReadExportInfo(const std::string& directory);

// Loads a folder that ExportModel wrote. Throws Error (kNotFound, kDataLoss)
// naming the file and what is wrong.
std::unique_ptr<ExportedModel> LoadExported(const std::string& directory,
                                            const SessionOptions& options = {});

}  // namespace sluice

#endif  // SLUICE_MODELS_TRAIN_EXPORT_H_
