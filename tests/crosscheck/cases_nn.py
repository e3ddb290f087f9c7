"""Random cases of products, convolutions, pools, normalisation and losses."""
import numpy as np
import torch

from cases import dtype_of, makes
from draw import compute_type, dims
from driver import Value
from reference import Node
from reference_nn import convolve, windows


def moderate(d):
    d.style = "ties" if d.style == "special" else d.style


# --- Products ----------------------------------------------------------------


@makes("MatMul", "BatchMatMul", "MatMulBias", "MatMulAdd")
def product(d, op):
    moderate(d)
    m, k, n = (d.pick([1, 2, 3, 5, 7, 8, 16, 17, 33, 64, 100]) for _ in range(3))
    if d.chance(0.08):
        m, k, n = d.pick([(0, k, n), (m, 0, n), (m, k, 0)])
    ta, tb = d.chance(0.5), d.chance(0.5)
    a, b = [k, m] if ta else [m, k], [n, k] if tb else [k, n]
    dtype, name = dtype_of(d, op), op["name"]
    if name == "BatchMatMul":
        lead = [d.pick([1, 2, 3, 5]) for _ in range(d.integer(0, 3))]
        a = d.broadcasting(lead) + a
        b = (lead if d.chance(0.5) else d.broadcasting(lead)) + b
    shapes = [a, b] + {"MatMulBias": [[n]], "MatMulAdd": [[m, n]]}.get(name, [])
    attrs = {"transpose_a": ta, "transpose_b": tb}
    if name == "MatMulBias":
        attrs["relu"] = d.chance(0.5)
    return attrs, [d.values(dtype, s) for s in shapes]


@makes("BiasAdd")
def bias_add(d, op):
    shape, dtype = d.shape(1, 4), dtype_of(d, op)
    return {}, [d.values(dtype, shape), d.values(dtype, shape[-1:])]


# --- Convolutions and pools --------------------------------------------------


def _padding(d, most):
    """SAME, VALID or up to `most` on each side."""
    kind = d.pick(["SAME", "VALID", "EXPLICIT"])
    sides = [d.integer(0, most[i // 2]) for i in range(4)]
    return {"padding": kind, **({"explicit_padding": sides} if kind == "EXPLICIT" else {})}


def _images(d, window, dilations, attrs):
    """Height and width that hold at least one window."""
    sides = attrs.get("explicit_padding", [0, 0, 0, 0])
    sizes = []
    for i in (0, 1):
        extent = (window[i] - 1) * dilations[i] + 1
        least = 1 if attrs["padding"] == "SAME" else max(
            1, extent - sides[2 * i] - sides[2 * i + 1])
        sizes.append(least + d.pick([0, 1, 2, 3, 5, 8, 11]))
    return sizes


def _convolution(d, op):
    moderate(d)
    depthwise = op["name"].startswith("Depthwise")
    kernel = [d.pick([1, 2, 3, 3, 5]), d.pick([1, 2, 3, 3, 4])]
    if d.chance(0.2):
        kernel = [1, 1]
    attrs = {"strides": [d.pick([1, 1, 2, 3]) for _ in range(2)],
             "dilations": [d.pick([1, 1, 1, 2, 3]) for _ in range(2)]}
    attrs.update(_padding(d, [3, 3]))
    size = _images(d, kernel, attrs["dilations"], attrs)
    batch = 0 if d.chance(0.03) else d.pick([1, 1, 2, 3, 5])
    if depthwise:
        channels = d.pick([1, 2, 3, 8, 9, 16, 17])
        filter = [*kernel, channels, d.pick([1, 1, 2, 3])]
    else:
        groups = d.pick([1, 1, 1, 2, 3])
        channels = groups * d.pick([1, 2, 3, 4, 8, 16])
        filter = [*kernel, channels // groups, groups * d.pick([1, 2, 3, 4, 8, 16])]
        attrs["groups"] = groups
    image = [batch, *size, channels]
    node = Node(op["name"], attrs, [])
    y = convolve(node, torch.zeros(image), torch.zeros(filter))
    return attrs, image, filter, list(y.shape)


@makes("Conv2D", "DepthwiseConv2D", "Conv2DBias", "Conv2DBiasAdd",
       "Conv2DBackpropInput", "Conv2DBackpropFilter",
       "DepthwiseConv2DBackpropInput", "DepthwiseConv2DBackpropFilter",
       "OhwiConv2D", "OhwiConv2DWithSums", "OhwiConv2DBackpropInput",
       "OhwiConv2DBackpropFilter")
def convolution(d, op):
    attrs, image, filter, y = _convolution(d, op)
    if op["name"].startswith("Ohwi"):
        filter = [filter[3], *filter[:3]]
    name, dtype = op["name"], dtype_of(d, op)
    shapes = [image, filter]
    if name.endswith("BackpropInput"):
        return attrs, [d.values(dtype, y), d.values(dtype, filter), dims(image)]
    if name.endswith("BackpropFilter"):
        return attrs, [d.values(dtype, image), d.values(dtype, y), dims(filter)]
    if name.startswith("Conv2DBias"):
        attrs["relu"] = d.chance(0.5)
        shapes += [y[-1:], y][:len(op["inputs"]) - 2]
    if name == "OhwiConv2DWithSums":
        # Sums are of y as it was rounded: here it need not be.
        return attrs, [Value.of(dtype, d.rng.integers(-1, 2, s)) for s in shapes]
    return attrs, [d.values(dtype, s) for s in shapes]


@makes("MaxPool", "AvgPool", "MaxPoolGrad", "MaxPoolGradGrad", "AvgPoolGrad",
       "MaxPoolWithArgmax", "MaxPoolGradWithArgmax")
def pool(d, op):
    moderate(d)
    window = [d.pick([1, 2, 2, 3, 4]), d.pick([1, 2, 2, 3, 5])]
    attrs = {"window": window, "strides": [d.pick([1, 1, 2, 3]) for _ in range(2)]}
    attrs.update(_padding(d, [w - 1 for w in window]))
    size = _images(d, window, [1, 1], attrs)
    x = [d.pick([1, 1, 2, 3, 0] if d.chance(0.2) else [1, 2]), *size,
         d.pick([1, 2, 3, 8, 9, 16, 17])]
    dtype, name = dtype_of(d, op), op["name"]
    c = Node(name, attrs, [])
    y = list(windows(c, torch.zeros(x))[0].shape[:-1])
    image = d.values(dtype, x)
    if name == "AvgPoolGrad":
        return attrs, [d.values(dtype, y), dims(x)]
    if name == "MaxPoolGradWithArgmax":
        places = d.rng.integers(0, window[0] * window[1], y)
        places[d.rng.random(y) < 0.05] = 255
        return attrs, [d.values(dtype, y), Value("uint8", places.astype(np.uint8)), dims(x)]
    if name in ("MaxPool", "AvgPool", "MaxPoolWithArgmax"):
        return attrs, [image]
    elements, inside = windows(c, torch.from_numpy(image.wide()))
    largest = torch.where(inside, elements, torch.tensor(-np.inf, dtype=torch.float64))
    pooled = Value.of(dtype, largest.amax(-1).numpy())
    return attrs, [image, pooled, d.values(dtype, y if name == "MaxPoolGrad" else x)]


# --- Normalisation -----------------------------------------------------------


@makes("BatchNorm", "BatchNormInference", "BatchNormApply", "BatchNormGrad",
       "BatchNormRelu", "BatchNormAddRelu", "BatchNormApplyRelu",
       "BatchNormApplyAddRelu", "BatchNormReluGrad", "BatchNormAddReluGrad",
       "BatchNormBySums", "BatchNormReluBySums", "BatchNormAddReluBySums")
def batch_norm(d, op):
    moderate(d)
    d.style = "plain"  # a variance of 0 makes 1 / sqrt(epsilon) of rounding
    name = op["name"]
    shape = [max(s, 2) if i == 0 else max(s, 1) for i, s in enumerate(d.shape(1, 4))]
    if len(shape) == 1 or d.chance(0.02):
        shape = [d.pick([4, 9, 30]), *shape[-1:]]
    T, C = dtype_of(d, op), shape[-1:]
    S = compute_type(T)
    attrs = {}
    if "epsilon" in op["attrs"]:
        attrs["epsilon"] = d.pick([1e-5, 1e-3, 1e-2])
    if "momentum" in op["attrs"]:
        attrs["momentum"] = d.pick([0.9, 0.5, 0.0, 0.99])
    x = d.values(T, shape)
    if "Grad" in name:
        tensors = [x, d.values(S, C), d.values(S, C), d.values(S, C, 0.5, 2)]
        if name != "BatchNormGrad":
            count = (int(np.prod(shape)) + 7) // 8
            tensors.append(Value("uint8", d.rng.integers(0, 256, count).astype(np.uint8)))
        terms = d.integer(1, 2) if name != "BatchNormGrad" else 1
        return attrs, tensors + [d.values(T, shape) for _ in range(terms)]
    relu = "Relu" in name
    # Far from 0, so that the sign of the result does not hang on rounding.
    scale = d.values(S, C, *((-0.3, 0.3) if relu else (-1, 1)))
    offset = d.rng.choice([-6.0, 6.0, 7.0], C) if relu else d.rng.uniform(-1, 1, C)
    tensors = [x, scale, Value.of(S, offset), d.values(S, C, -0.5, 0.5),
               d.values(S, C, 0.5, 2)]
    if "Add" in name:
        tensors.append(d.values(T, shape, -1, 1))
    if name.endswith("BySums"):
        rows = x.wide().reshape(-1, *C)
        tensors += [Value.of(S, rows.sum(0)), Value.of(S, (rows ** 2).sum(0))]
    return attrs, tensors


@makes("LayerNorm", "LayerNormGrad")
def layer_norm(d, op):
    d.style = "plain"
    shape = [max(1, s) for s in d.shape(1, 4)]
    shape[-1] = max(shape[-1], 4)
    T = dtype_of(d, op)
    S = compute_type(T)
    C, rows = shape[-1:], shape[:-1]
    if op["name"] == "LayerNorm":
        return {"epsilon": d.pick([1e-5, 1e-3])}, [
            d.values(T, shape), d.values(S, C), d.values(S, C)]
    return {}, [d.values(T, shape), d.values(S, C), d.values(S, rows),
                d.values(S, rows, 0.5, 2), d.values(T, shape)]


# --- Losses ------------------------------------------------------------------


@makes("SoftmaxCrossEntropy", "SoftmaxCrossEntropyGrad", "SoftmaxCrossEntropyWithGrad",
       "SparseSoftmaxCrossEntropy", "SparseSoftmaxCrossEntropyGrad",
       "SparseSoftmaxCrossEntropyWithGrad")
def cross_entropy(d, op):
    moderate(d)
    name = op["name"]
    shape = d.shape(1, 3)
    shape[-1] = max(1, shape[-1])
    T, rows = dtype_of(d, op), shape[:-1]
    shift = d.pick([0, 0, 30, -100, 1000])
    logits = d.values(T, shape, shift - 3, shift + 3)
    labels = d.indices(shape[-1], rows) if name.startswith("Sparse") else \
        d.values(T, shape, 0.1, 1)
    inputs = [logits, labels]
    if name.endswith("Grad") and not name.endswith("WithGrad"):
        wide = logits.wide()
        inputs.append(Value.of(T, wide.max(-1)))
        inputs.append(Value.of(T, 1 / np.exp(wide - wide.max(-1, keepdims=True)).sum(-1)))
    if name.endswith("Grad"):
        inputs.append(d.values(T, rows))
    return {"label_smoothing": d.pick([0.0, 0.0, 0.1, 1.0])}, inputs


@makes("SigmoidCrossEntropy")
def sigmoid_cross_entropy(d, op):
    moderate(d)
    shape, T = d.shape(), dtype_of(d, op)
    far = d.pick([3, 100])
    return {}, [d.values(T, shape, -far, far), d.values(T, shape, 0, 1)]


@makes("DropoutGrad")
def dropout_grad(d, op):
    shape = d.shape()
    return {"rate": d.pick([0.0, 0.1, 0.5, 0.9])}, [
        d.values(dtype_of(d, op), shape), d.values("bool", shape)]
