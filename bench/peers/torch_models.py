"""The models of PyTorch's benchmarks, by the names of bench/compare."""

from torch import nn


def dense(inputs, units):
    layer = nn.Linear(inputs, units)
    nn.init.trunc_normal_(layer.weight, std=inputs**-0.5)
    nn.init.zeros_(layer.bias)
    return layer


def image_shape(name):
    if name.startswith("resnet50"):
        return (3, 224, 224)
    return (1, 28, 28) if name == "mnist_cnn" else (784,)


def make_model(name):
    if name.startswith("resnet50"):
        import torchvision  # which takes memory that the others do without

        return torchvision.models.resnet50()
    if name == "mnist_softmax":
        return dense(784, 10)
    if name == "mnist_mlp":
        return nn.Sequential(
            dense(784, 128),
            nn.ReLU(),
            dense(128, 32),
            nn.ReLU(),
            dense(32, 10),
        )
    return nn.Sequential(
        nn.Conv2d(1, 32, 5, padding="same"),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 5, padding="same"),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        dense(7 * 7 * 64, 1024),
        nn.ReLU(),
        nn.Dropout(0.5),
        dense(1024, 10),
    )
