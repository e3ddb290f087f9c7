#include <sluice/sluice.h>

#include <cstdio>

using namespace sluice;

int main(int argc, char** argv) {  // MODEL PICTURE...
  const auto model = LoadExported(argv[1]);
  const std::vector<std::string>& names = model->info().class_names;
  const RowwiseMap standardize =
      Standardize("image", {0.485, 0.456, 0.406}, {0.229, 0.224, 0.225});
  for (int i = 2; i < argc; ++i) {
    const Tensor picture = ReadImage(argv[i]).ValueOrThrow();
    Example batch = {
        {"image", ResizeAndCrop(picture, 256, 224).Reshaped({1, 224, 224, 3})}};
    standardize.apply(batch);
    const Example outputs = model->Predict(batch);
    std::printf("%s\n", argv[i]);
    for (size_t n = 0; n < names.size(); ++n) {
      const double probability = outputs["probabilities"].At(n);
      std::printf("  %.4f  %s\n", probability, names[n].c_str());
    }
  }
  return 0;
}
