#!/usr/bin/env python3
"""Writes the golden values of this folder with PyTorch, in float64.

The files are committed, so the tests need neither Python nor PyTorch. Run this
again only to add a case: it needs torch, numpy and safetensors (the versions of
bench/requirements.txt will do) and rewrites every file beside it, with the same
bytes for the same library versions. README.md describes the layout.
"""

import json
import math
import pathlib
import zlib

import numpy
import torch
import torch.nn.functional as F
from safetensors.numpy import save_file

HERE = pathlib.Path(__file__).resolve().parent


class Family:
    """The cases of one file."""

    def __init__(self):
        self.tensors = {}
        self.metadata = {}

    def add_tensor(self, name, value):
        if isinstance(value, torch.Tensor):
            value = value.detach().numpy()
        self.tensors[name] = numpy.ascontiguousarray(value)

    def add_operation(self, case, op, attributes, inputs, function):
        """Runs `function(*inputs)` and its backward pass and stores both.

        Inputs of a floating type are differentiated. The first output gets a
        random output gradient; further outputs are stored as values only.
        """
        leaves = [
            x.detach().requires_grad_(x.is_floating_point()) for x in inputs
        ]
        outputs = function(*leaves)
        if not isinstance(outputs, tuple):
            outputs = (outputs,)
        seed = random(case + "/grad_out0", outputs[0].shape)
        differentiated = [x for x in leaves if x.requires_grad]
        gradients = iter(
            torch.autograd.grad(
                outputs[0], differentiated, seed, allow_unused=True
            )
        )
        for i, leaf in enumerate(leaves):
            self.add_tensor(f"{case}/in{i}", leaf)
            gradient = next(gradients) if leaf.requires_grad else None
            if gradient is not None:
                self.add_tensor(f"{case}/grad_in{i}", gradient)
        for i, output in enumerate(outputs):
            self.add_tensor(f"{case}/out{i}", output)
        self.add_tensor(f"{case}/grad_out0", seed)
        self.describe(
            case,
            {
                "op": op,
                "attributes": attributes,
                "inputs": len(leaves),
                "outputs": len(outputs),
            },
        )

    def describe(self, case, description):
        assert case not in self.metadata, case
        self.metadata[case] = json.dumps(description)

    def write(self, name):
        path = HERE / f"{name}.safetensors"
        # safetensors keeps the metadata in a hash map, so its order in the
        # file changes from run to run: sort the header to keep bytes the same.
        save_file(self.tensors, path, self.metadata)
        raw = path.read_bytes()
        length = int.from_bytes(raw[:8], "little")
        header = json.loads(raw[8 : 8 + length])
        header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
        text = json.dumps(header, separators=(",", ":"), sort_keys=True)
        text += " " * (-len(text) % 8)
        text = text.encode()
        body = len(text).to_bytes(8, "little") + text + raw[8 + length :]
        path.write_bytes(body)
        print(f"{path.name}: {len(self.metadata)} cases, {len(body)} bytes")


def random(name, shape, low=None):
    """Standard normal values that depend on `name` alone."""
    generator = numpy.random.default_rng(zlib.crc32(name.encode()))
    values = generator.standard_normal(tuple(shape))
    if low is not None:
        values = low + numpy.abs(values)
    return torch.from_numpy(numpy.asarray(values))


# --- windows: convolution and pooling -----------------------------------------


def pair(value):
    """Strides and dilations of the tables: one number stands for both."""
    return [value, value] if isinstance(value, int) else list(value)


def padding_of(padding, size, window, strides, dilations):
    """[top, bottom, left, right]; SAME follows TensorFlow's rule."""
    if not isinstance(padding, str):
        return list(padding)
    if padding == "VALID":
        return [0, 0, 0, 0]
    result = []
    for n, k, s, d in zip(size, window, strides, dilations):
        total = max((math.ceil(n / s) - 1) * s + (k - 1) * d + 1 - n, 0)
        result += [total // 2, total - total // 2]
    return result


def nchw(x):
    return x.permute(0, 3, 1, 2)


def nhwc(x):
    return x.permute(0, 2, 3, 1)


def pad(x, padding, value=0.0):
    top, bottom, left, right = padding
    return F.pad(x, (left, right, top, bottom), value=value)


def convolve(x, filters, strides, padding, dilations, groups):
    """x NHWC, filters HWIO."""
    y = F.conv2d(
        pad(nchw(x), padding),
        filters.permute(3, 2, 0, 1),
        stride=strides,
        dilation=dilations,
        groups=groups,
    )
    return nhwc(y)


def depthwise(x, filters, strides, padding, dilations):
    """x NHWC, filters [kh, kw, c, m]; output channel is c * M + m."""
    kh, kw, channels, multiplier = filters.shape
    y = F.conv2d(
        pad(nchw(x), padding),
        filters.permute(2, 3, 0, 1).reshape(channels * multiplier, 1, kh, kw),
        stride=strides,
        dilation=dilations,
        groups=channels,
    )
    return nhwc(y)


def max_pool(x, window, strides, padding):
    return nhwc(F.max_pool2d(pad(nchw(x), padding, -math.inf), window, strides))


def average_pool(x, window, strides, padding):
    """Padding takes no part in the average."""
    x = nchw(x)
    ones = torch.ones_like(x[:, :1])
    total = F.avg_pool2d(pad(x, padding), window, strides, divisor_override=1)
    count = F.avg_pool2d(
        pad(ones, padding), window, strides, divisor_override=1
    )
    return nhwc(total / count)


# Padding is SAME, VALID or explicit amounts: top, bottom, left, right.
# name, input NHWC, filter HWIO, strides, dilations, padding, groups
CONVOLUTIONS = [
    ("valid_3x3", (2, 7, 6, 2), (3, 3, 2, 3), 1, 1, "VALID", 1),
    ("same_3x3", (2, 5, 7, 2), (3, 3, 2, 3), 1, 1, "SAME", 1),
    ("same_5x5", (1, 6, 5, 2), (5, 5, 2, 2), 1, 1, "SAME", 1),
    ("same_even_2x4", (2, 5, 6, 2), (2, 4, 2, 3), 1, 1, "SAME", 1),
    ("same_stride2_even_in", (1, 8, 6, 2), (3, 3, 2, 3), 2, 1, "SAME", 1),
    ("same_stride2_odd_in", (1, 7, 9, 2), (3, 3, 2, 3), 2, 1, "SAME", 1),
    ("same_stride_2_3", (2, 9, 10, 1), (5, 4, 1, 3), (2, 3), 1, "SAME", 1),
    ("same_stride_over_window",
     (1, 8, 7, 2), (2, 1, 2, 3), (3, 2), 1, "SAME", 1),
    ("same_dilation2", (1, 9, 7, 2), (3, 3, 2, 2), 1, 2, "SAME", 1),
    ("same_stride2_dilation2", (1, 9, 8, 2), (3, 3, 2, 2), 2, 2, "SAME", 1),
    ("same_7x7_over_input", (1, 3, 4, 1), (7, 7, 1, 2), 1, 1, "SAME", 1),
    ("valid_stride3", (2, 10, 11, 1), (3, 2, 1, 3), 3, 1, "VALID", 1),
    ("valid_dilation_1_2", (1, 6, 8, 2), (3, 3, 2, 2), 1, (1, 2), "VALID", 1),
    ("valid_stride2_dilation2", (1, 11, 10, 2), (3, 3, 2, 2), 2, 2, "VALID", 1),
    ("valid_1x1", (2, 3, 5, 3), (1, 1, 3, 4), 1, 1, "VALID", 1),
    ("valid_1x1_stride2", (2, 5, 6, 3), (1, 1, 3, 4), 2, 1, "VALID", 1),
    ("valid_whole_input", (3, 4, 3, 2), (4, 3, 2, 5), 1, 1, "VALID", 1),
    ("explicit_asymmetric", (1, 5, 6, 2), (3, 3, 2, 3), 1, 1, (2, 0, 1, 3), 1),
    ("explicit_stride2", (1, 7, 7, 2), (3, 3, 2, 3), 2, 1, (1, 1, 1, 1), 1),
    ("explicit_stride_2_3_dilation_2_1",
     (1, 9, 8, 1), (3, 3, 1, 2), (2, 3), (2, 1), (0, 3, 2, 1), 1),
    ("groups2_same", (2, 5, 6, 4), (3, 3, 2, 6), 1, 1, "SAME", 2),
    ("groups3_stride2_valid", (1, 7, 8, 6), (3, 2, 2, 3), 2, 1, "VALID", 3),
    ("groups2_dilation2_explicit",
     (1, 7, 6, 4), (3, 3, 2, 4), 1, 2, (1, 2, 2, 1), 2),
    ("groups_as_depthwise", (1, 5, 5, 3), (3, 3, 1, 6), 1, 1, "SAME", 3),
]

# name, input NHWC, filter [kh, kw, c, m], strides, dilations, padding
DEPTHWISE = [
    ("same_3x3", (2, 5, 6, 3), (3, 3, 3, 1), 1, 1, "SAME"),
    ("same_multiplier2", (1, 6, 5, 3), (3, 3, 3, 2), 1, 1, "SAME"),
    ("same_stride2_even_in", (1, 8, 6, 2), (3, 3, 2, 2), 2, 1, "SAME"),
    ("valid_dilation2", (1, 8, 9, 2), (3, 3, 2, 1), 1, 2, "VALID"),
    ("valid_stride3", (2, 10, 8, 2), (2, 3, 2, 3), 3, 1, "VALID"),
    ("explicit_stride_1_2",
     (1, 5, 7, 3), (3, 4, 3, 2), (1, 2), 1, (1, 0, 2, 1)),
]

# name, input NHWC, window, strides, padding
POOLINGS = [
    ("valid_2x2", (2, 6, 8, 3), (2, 2), (2, 2), "VALID"),
    ("valid_2x2_odd_in", (2, 7, 5, 3), (2, 2), (2, 2), "VALID"),
    ("same_2x2_odd_in", (2, 7, 5, 3), (2, 2), (2, 2), "SAME"),
    ("same_3x3_stride2", (1, 8, 7, 3), (3, 3), (2, 2), "SAME"),
    ("same_3x3_stride1", (1, 5, 6, 2), (3, 3), (1, 1), "SAME"),
    ("same_3x2_stride_2_3", (2, 7, 10, 2), (3, 2), (2, 3), "SAME"),
    ("valid_3x3_stride1", (1, 6, 5, 2), (3, 3), (1, 1), "VALID"),
    ("valid_stride_over_window", (1, 9, 8, 2), (2, 1), (3, 3), "VALID"),
    ("explicit_3x3_stride2", (1, 8, 8, 2), (3, 3), (2, 2), (1, 1, 1, 1)),
    ("explicit_asymmetric", (1, 6, 7, 2), (3, 3), (2, 2), (0, 1, 2, 1)),
    ("whole_input", (2, 4, 5, 3), (4, 5), (1, 1), "VALID"),
]


def window_attributes(strides, padding):
    attributes = {"strides": list(strides)}
    if isinstance(padding, str):
        return attributes | {"padding": padding}
    return attributes | {
        "padding": "EXPLICIT",
        "explicit_padding": list(padding),
    }


def convolution_family():
    family = Family()
    for row in CONVOLUTIONS:
        name, size, filters, strides, dilations, padding, groups = row
        case = "conv2d_" + name
        strides, dilations = pair(strides), pair(dilations)
        pads = padding_of(
            padding, size[1:3], filters[:2], strides, dilations
        )
        family.add_operation(
            case,
            "Conv2D",
            window_attributes(strides, padding)
            | {"dilations": dilations, "groups": groups},
            [random(case + "/in0", size), random(case + "/in1", filters)],
            lambda x, w: convolve(x, w, strides, pads, dilations, groups),
        )
    for row in DEPTHWISE:
        name, size, filters, strides, dilations, padding = row
        case = "depthwise_conv2d_" + name
        strides, dilations = pair(strides), pair(dilations)
        pads = padding_of(
            padding, size[1:3], filters[:2], strides, dilations
        )
        family.add_operation(
            case,
            "DepthwiseConv2D",
            window_attributes(strides, padding)
            | {"dilations": dilations},
            [random(case + "/in0", size), random(case + "/in1", filters)],
            lambda x, w: depthwise(x, w, strides, pads, dilations),
        )
    return family


def pooling_family():
    family = Family()
    for prefix, op, function in (
        ("max_pool_", "MaxPool", max_pool),
        ("avg_pool_", "AvgPool", average_pool),
    ):
        for name, size, window, strides, padding in POOLINGS:
            case = prefix + name
            pads = padding_of(padding, size[1:3], window, strides, (1, 1))
            family.add_operation(
                case,
                op,
                {"window": list(window)}
                | window_attributes(strides, padding),
                [random(case + "/in0", size)],
                lambda x: function(x, window, strides, pads),
            )
    return family


# --- normalisation ------------------------------------------------------------

BATCH_NORM_MOMENTUM = 0.9  # the weight of the old running value
EPSILON = 1e-5


def batch_norm(x, gamma, beta, mean, variance, training):
    """Returns y, new running mean, new running variance; channels last."""
    channels_first = x.movedim(-1, 1)
    running_mean = mean.detach().clone()
    running_variance = variance.detach().clone()
    if not training:
        # F.batch_norm gives no gradient for the statistics it is given.
        y = (x - mean) / torch.sqrt(variance + EPSILON) * gamma + beta
        reference = F.batch_norm(
            channels_first, running_mean, running_variance, gamma, beta,
            False, 0.0, EPSILON,
        )
        assert torch.allclose(y, reference.movedim(1, -1), rtol=1e-13)
        return y
    y = F.batch_norm(
        channels_first,
        running_mean,
        running_variance,
        gamma,
        beta,
        True,
        1.0 - BATCH_NORM_MOMENTUM,  # PyTorch's momentum weighs the new value
        EPSILON,
    )
    return y.movedim(1, -1), running_mean, running_variance


def normalisation_family():
    family = Family()
    for name, size in (
        ("2d", (6, 4)),
        ("4d", (3, 5, 4, 3)),
        ("4d_single_channel", (2, 3, 3, 1)),
        ("large_mean", (8, 3)),
    ):
        for training in (True, False):
            mode = "training" if training else "inference"
            case = f"batch_norm_{name}_{mode}"
            channels = size[-1:]
            x = random(case + "/in0", size) * 2.0
            if name == "large_mean":
                x = x + 1000.0  # E[x^2] - E[x]^2 loses digits here
            family.add_operation(
                case,
                "BatchNorm",
                {
                    "epsilon": EPSILON,
                    "momentum": BATCH_NORM_MOMENTUM,
                    "training": training,
                },
                [
                    x,
                    random(case + "/in1", channels),
                    random(case + "/in2", channels),
                    random(case + "/in3", channels),
                    random(case + "/in4", channels, low=0.5),
                ],
                lambda x, g, b, m, v: batch_norm(x, g, b, m, v, training),
            )
    for name, size in (
        ("2d", (5, 7)),
        ("3d", (2, 3, 8)),
        ("4d", (2, 3, 2, 5)),
        ("large_mean", (4, 6)),
    ):
        case = "layer_norm_" + name
        x = random(case + "/in0", size)
        if name == "large_mean":
            x = x + 1000.0
        family.add_operation(
            case,
            "LayerNorm",
            {"epsilon": EPSILON},
            [
                x,
                random(case + "/in1", size[-1:]),
                random(case + "/in2", size[-1:]),
            ],
            lambda x, g, b: F.layer_norm(x, x.shape[-1:], g, b, EPSILON),
        )
    return family


# --- activations and losses ---------------------------------------------------


def smooth(labels, amount):
    return (1.0 - amount) * labels + amount / labels.shape[-1]


def dense_cross_entropy(logits, labels, smoothing):
    """One loss per row. Labels are probabilities, differentiated as well."""
    return -(smooth(labels, smoothing) * F.log_softmax(logits, -1)).sum(-1)


def sparse_cross_entropy(logits, labels, smoothing):
    return F.cross_entropy(
        logits, labels, reduction="none", label_smoothing=smoothing
    )


def loss_family():
    family = Family()
    points = torch.tensor(
        [-40, -8, -3, -1, -0.5, -1e-3, 0, 1e-3, 0.5, 1, 3, 8, 40],
        dtype=torch.float64,
    )
    for approximate in (False, True):
        mode = "tanh" if approximate else "none"
        for name, x in (
            ("random", random("gelu", (4, 5))),
            ("points", points),
        ):
            family.add_operation(
                f"gelu_{'tanh' if approximate else 'erf'}_{name}",
                "Gelu",
                {"approximate": approximate},
                [x],
                lambda x: F.gelu(x, approximate=mode),
            )

    batch, classes = 6, 10
    huge = random("huge", (4, 5)) * 1000.0  # exp overflows without the maximum
    for smoothing in (0.0, 0.1):
        suffix = "smoothed" if smoothing else "plain"
        for name, logits in (
            ("", random("logits" + suffix, (batch, classes))),
            ("_huge", huge),
        ):
            rows, columns = logits.shape
            attributes = {"label_smoothing": smoothing}
            case = f"softmax_cross_entropy_{suffix}{name}"
            family.add_operation(
                case,
                "SoftmaxCrossEntropy",
                attributes,
                [logits, F.softmax(random(case + "/in1", (rows, columns)), -1)],
                lambda x, y: dense_cross_entropy(x, y, smoothing),
            )
            case = f"sparse_softmax_cross_entropy_{suffix}{name}"
            generator = numpy.random.default_rng(zlib.crc32(case.encode()))
            labels = torch.from_numpy(generator.integers(0, columns, rows))
            family.add_operation(
                case,
                "SparseSoftmaxCrossEntropy",
                attributes,
                [logits, labels],
                lambda x, y: sparse_cross_entropy(x, y, smoothing),
            )

    for name, logits in (
        ("random", random("sigmoid", (4, 5)) * 3.0),
        ("points", points),
    ):
        case = "sigmoid_cross_entropy_" + name
        family.add_operation(
            case,
            "SigmoidCrossEntropy",
            {},
            [logits, torch.sigmoid(random(case + "/in1", logits.shape))],
            lambda x, y: F.binary_cross_entropy_with_logits(
                x, y, reduction="none"
            ),
        )
    family.add_operation(
        "mean_squared_error",
        "MeanSquaredError",
        {},
        [random("mse/in0", (4, 3)), random("mse/in1", (4, 3))],
        F.mse_loss,
    )
    family.add_operation(
        "l2_loss",
        "L2Loss",
        {},
        [random("l2/in0", (3, 4, 2))],
        lambda x: (x * x).sum() / 2.0,
    )
    for name, x in (("random", random("log_softmax", (5, 7))), ("huge", huge)):
        family.add_operation(
            "log_softmax_" + name,
            "LogSoftmax",
            {},
            [x],
            lambda x: F.log_softmax(x, -1),
        )
    for name, axes, keep_dims in (
        ("all", [0, 1, 2], False),
        ("last", [2], False),
        ("first_and_last", [0, 2], True),
    ):
        family.add_operation(
            "logsumexp_" + name,
            "LogSumExp",
            {"axes": axes, "keep_dims": keep_dims},
            [random("logsumexp_" + name, (3, 4, 5))],
            lambda x: torch.logsumexp(x, axes, keepdim=keep_dims),
        )
    family.add_operation(
        "logsumexp_huge",
        "LogSumExp",
        {"axes": [1], "keep_dims": False},
        [huge],
        lambda x: torch.logsumexp(x, 1),
    )
    return family


# --- optimizers ---------------------------------------------------------------

STEPS = 10
SHAPE = (3, 4)

# The slot's name here, and in the state of PyTorch's optimizer.
SLOTS = {
    "ApplySgd": {},
    "ApplyMomentum": {"momentum": "momentum_buffer"},
    "ApplyRmsProp": {"mean_square": "square_avg"},
    "ApplyAdagrad": {"accumulator": "sum"},
    "ApplyAdam": {"m": "exp_avg", "v": "exp_avg_sq"},
    "ApplyAdamW": {"m": "exp_avg", "v": "exp_avg_sq"},
}


def optimizer_cases():
    """case, op, hyperparameters, learning rate, optimizer's constructor."""
    optim = torch.optim
    adam = {"beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8}
    other = {"beta1": 0.8, "beta2": 0.95, "epsilon": 1e-3}

    def betas(h):
        return {"betas": (h["beta1"], h["beta2"]), "eps": h["epsilon"]}

    yield "sgd", "ApplySgd", {}, 0.1, lambda p: optim.SGD(p, 0.1)
    for nesterov in (False, True):
        h = {"momentum": 0.9, "nesterov": nesterov}
        yield (
            "nesterov" if nesterov else "momentum",
            "ApplyMomentum",
            h,
            0.05,
            lambda p: optim.SGD(p, 0.05, **h),
        )
    for momentum in (0.0, 0.9):
        yield (
            "rmsprop_momentum" if momentum else "rmsprop",
            "ApplyRmsProp",
            {"decay": 0.9, "momentum": momentum, "epsilon": 1e-8},
            0.01,
            lambda p: optim.RMSprop(
                p, 0.01, alpha=0.9, eps=1e-8, momentum=momentum
            ),
        )
    yield (
        "adagrad",
        "ApplyAdagrad",
        {"initial_accumulator": 0.1, "epsilon": 1e-10},
        0.1,
        lambda p: optim.Adagrad(
            p, 0.1, initial_accumulator_value=0.1, eps=1e-10
        ),
    )
    yield "adam", "ApplyAdam", adam, 0.01, lambda p: optim.Adam(
        p, 0.01, **betas(adam)
    )
    yield "adam_other", "ApplyAdam", other, 0.02, lambda p: optim.Adam(
        p, 0.02, **betas(other)
    )
    decayed = adam | {"weight_decay": 0.1}
    yield "adamw", "ApplyAdamW", decayed, 0.01, lambda p: optim.AdamW(
        p, 0.01, weight_decay=0.1, **betas(adam)
    )


def optimizer_family():
    family = Family()
    for name, op, hyperparameters, rate, make in optimizer_cases():
        # Once with a fixed learning rate, once with one that changes half-way:
        # it then shows whether the rate is inside or outside the momentum.
        for changing in (False, True):
            case = name + ("_changing_rate" if changing else "")
            rates = [
                rate * (0.1 if changing and step >= STEPS // 2 else 1.0)
                for step in range(STEPS)
            ]
            add_optimizer(family, case, op, hyperparameters, rates, make)
    return family


def add_optimizer(family, case, op, hyperparameters, rates, make):
    parameter = random("parameter", SHAPE).requires_grad_(True)
    initial = parameter.detach().clone()
    gradients = random(case + "/gradients", (STEPS, *SHAPE))
    gradients[3] = 0.0  # a step without a gradient still moves the slots
    optimizer = make([parameter])
    slots = dict(SLOTS[op])
    if op == "ApplyRmsProp" and hyperparameters["momentum"]:
        slots["momentum"] = "momentum_buffer"
    parameters, values = [], {slot: [] for slot in slots}
    for gradient, rate in zip(gradients, rates):
        optimizer.param_groups[0]["lr"] = rate
        parameter.grad = gradient.clone()
        optimizer.step()
        parameters.append(parameter.detach().clone())
        for slot, torch_name in slots.items():
            value = optimizer.state[parameter][torch_name]
            values[slot].append(value.detach().clone())
    family.add_tensor(f"{case}/initial", initial)
    family.add_tensor(f"{case}/gradients", gradients)
    family.add_tensor(f"{case}/learning_rates", numpy.array(rates))
    family.add_tensor(f"{case}/parameters", torch.stack(parameters))
    for slot, history in values.items():
        family.add_tensor(f"{case}/slot/{slot}", torch.stack(history))
    family.describe(
        case,
        {
            "op": op,
            "hyperparameters": hyperparameters,
            "steps": STEPS,
            "slots": sorted(slots),
        },
    )


def main():
    torch.set_num_threads(1)  # the order of sums must not depend on the machine
    convolution_family().write("convolution")
    pooling_family().write("pooling")
    normalisation_family().write("normalisation")
    loss_family().write("losses")
    optimizer_family().write("optimizers")


if __name__ == "__main__":
    main()
