"""References of products, convolutions, pools, normalisation and losses."""
import torch
import torch.nn.functional as F

from reference import (LARGEST, MAGNITUDES, at_least_one, by_channels, by_rows,
                       reference, where)

# --- Products ----------------------------------------------------------------


@reference("MatMul", "BatchMatMul", "MatMulBias", "MatMulAdd", scale=MAGNITUDES)
def product(c, a, b, addend=None):
    a = a.transpose(-1, -2) if c.transpose_a else a
    b = b.transpose(-1, -2) if c.transpose_b else b
    y = torch.matmul(a, b)
    if addend is not None:
        y = y + addend
    return F.relu(y) if c.attrs.get("relu") else y


@reference("BiasAdd", scale=MAGNITUDES)
def bias_add(c, x, bias):
    return x + bias


# --- Convolutions ------------------------------------------------------------


def window(c, size, kernel):
    """Top, bottom, left, right padding under SAME, VALID or EXPLICIT."""
    if c.padding == "VALID":
        return [0, 0, 0, 0]
    if c.padding == "EXPLICIT":
        return list(c.explicit_padding)
    padding = []
    for d in (0, 1):
        extent = (kernel[d] - 1) * c.attrs.get("dilations", [1, 1])[d] + 1
        outputs = -(-size[d] // c.strides[d])
        total = max(0, (outputs - 1) * c.strides[d] + extent - size[d])
        padding += [total // 2, total - total // 2]
    return padding


class Dense(torch.autograd.Function):
    """x, and its gradients, without gaps in memory: the second gradient of a
    convolution refuses others."""

    @staticmethod
    def forward(ctx, x):
        return x.contiguous().clone()

    @staticmethod
    def backward(ctx, dy):
        return Dense.apply(dy)


def convolve(c, x, filter):
    """NHWC with HWIO, or with [h, w, channels, multiplier] where depthwise."""
    groups = c.attrs.get("groups", 1)
    if c.op.startswith("Depthwise"):
        groups = filter.shape[2]
        weights = filter.permute(2, 3, 0, 1).reshape(-1, 1, *filter.shape[:2])
    else:
        weights = filter.permute(3, 2, 0, 1)
    top, bottom, left, right = window(c, x.shape[1:3], filter.shape[:2])
    images = F.pad(x.permute(0, 3, 1, 2), [left, right, top, bottom])
    y = F.conv2d(Dense.apply(images), Dense.apply(weights), stride=tuple(c.strides),
                 dilation=tuple(c.dilations), groups=groups)
    return Dense.apply(y).permute(0, 2, 3, 1)


@reference("Conv2D", "DepthwiseConv2D", "Conv2DBias", "Conv2DBiasAdd",
           scale=MAGNITUDES)
def conv(c, x, filter, bias=None, addend=None):
    y = convolve(c, x, filter)
    for term in (bias, addend):
        if term is not None:
            y = y + term
    return F.relu(y) if c.attrs.get("relu") else y


@reference("OhwiConv2D", scale=MAGNITUDES)
def conv_ohwi(c, x, filter):
    return convolve(c, x, filter.permute(1, 2, 3, 0))


@reference("OhwiConv2DWithSums", scale=MAGNITUDES)
def conv_ohwi_with_sums(c, x, filter):
    y = conv_ohwi(c, x, filter)
    rows = y.reshape(-1, y.shape[-1])
    return [y, rows.sum(0), (rows ** 2).sum(0)]


def transposed(function, shape, dy):
    """The gradient of a linear function at dy, differentiable in turn."""
    with torch.enable_grad():
        x = torch.zeros(shape, dtype=dy.dtype, requires_grad=True)
        return torch.autograd.grad(function(x), x, dy, create_graph=True)[0]


@reference("Conv2DBackpropInput", "DepthwiseConv2DBackpropInput", scale=MAGNITUDES)
def conv_backprop_input(c, dy, filter, shape):
    return transposed(lambda x: convolve(c, x, filter), shape.tolist(), dy)


@reference("Conv2DBackpropFilter", "DepthwiseConv2DBackpropFilter", scale=MAGNITUDES)
def conv_backprop_filter(c, x, dy, shape):
    return transposed(lambda f: convolve(c, x, f), shape.tolist(), dy)


@reference("OhwiConv2DBackpropInput", scale=MAGNITUDES)
def conv_ohwi_backprop_input(c, dy, filter, shape):
    return transposed(lambda x: conv_ohwi(c, x, filter), shape.tolist(), dy)


@reference("OhwiConv2DBackpropFilter", scale=MAGNITUDES)
def conv_ohwi_backprop_filter(c, x, dy, shape):
    return transposed(lambda f: conv_ohwi(c, x, f), shape.tolist(), dy)


# --- Pools -------------------------------------------------------------------


def windows(c, x):
    """The elements of every window, [n, h', w', c, elements], and which of
    them lie within the image."""
    h, w = c.window
    top, bottom, left, right = window(c, x.shape[1:3], c.window)

    def cut(image):
        return image.unfold(1, h, c.strides[0]).unfold(2, w, c.strides[1]).flatten(-2)

    sides = [0, 0, left, right, top, bottom]
    inside = F.pad(torch.ones_like(x), sides)
    return cut(F.pad(x, sides)), cut(inside) > 0


def first(hits):
    """The position of the first hit on the last axis, and whether any is."""
    order = torch.arange(hits.shape[-1], 0, -1)
    return (hits * order).argmax(-1, keepdim=True), hits.any(-1)


@reference("MaxPool")
def max_pool(c, x):
    elements, inside = windows(c, x)
    seen = where(inside, elements, -float("inf"))
    largest = seen.amax(-1, keepdim=True)
    index, _ = first(inside & ((seen == largest) | torch.isnan(seen)))
    return torch.gather(elements, -1, index)[..., 0]


@reference("MaxPoolWithArgmax")
def max_pool_with_argmax(c, x):
    elements, inside = windows(c, x)
    seen = where(inside, elements, -float("inf"))
    largest = seen.amax(-1)
    index, _ = first(inside & (seen == largest.unsqueeze(-1)))
    return [max_pool(c, x), where(torch.isnan(largest), 255, index[..., 0]).to(torch.uint8)]


@reference("MaxPoolGradWithArgmax", scale=at_least_one)
def max_pool_grad_with_argmax(c, dy, argmax, shape):
    index = argmax.long().unsqueeze(-1)
    elements = c.window[0] * c.window[1]

    def taken(x):
        seen, inside = windows(c, x)
        held = torch.gather(where(inside, seen, 0.0), -1, index.clamp(max=elements - 1))
        return where(index < elements, held, 0.0)[..., 0]

    return transposed(taken, shape.tolist(), dy)


@reference("MaxPoolGradGrad", scale=LARGEST)
def max_pool_grad_grad(c, x, y, g):
    elements, inside = windows(c, x)
    index, any_hit = first(inside & ~(elements < y.unsqueeze(-1)))
    taken = torch.gather(windows(c, g)[0], -1, index)[..., 0]
    return where(any_hit, taken, 0.0)


@reference("MaxPoolGrad", scale=at_least_one)
def max_pool_grad(c, x, y, dy):
    x, y = x.detach(), y.detach()
    return transposed(lambda g: max_pool_grad_grad(c, x, y, g), x.shape, dy)


@reference("AvgPool", scale=MAGNITUDES)
def avg_pool(c, x):
    elements, inside = windows(c, x)
    return where(inside, elements, 0.0).sum(-1) / inside.sum(-1)


@reference("AvgPoolGrad", scale=MAGNITUDES)
def avg_pool_grad(c, dy, shape):
    return transposed(lambda x: avg_pool(c, x), shape.tolist(), dy)


# --- Normalisation -----------------------------------------------------------


def over_rows(x):
    return x.reshape(-1, x.shape[-1]).sum(0)


def bits(y):
    """A byte for each eight elements, element i in bit i % 8."""
    flat = (y.detach() > 0).reshape(-1).to(torch.int64)
    flat = F.pad(flat, [0, -len(flat) % 8]).reshape(-1, 8)
    return (flat << torch.arange(8)).sum(1).to(torch.uint8)


def unbits(mask, shape):
    flat = (mask.to(torch.int64).unsqueeze(1) >> torch.arange(8)) & 1
    count = 1
    for size in shape:
        count *= size
    return flat.reshape(-1)[:count].reshape(shape).bool()


def batch_norm_outputs(c, x, scale, offset, running_mean, running_variance):
    rows = x.reshape(-1, x.shape[-1])
    count = rows.shape[0]
    mean = rows.mean(0)
    variance = ((rows - mean) ** 2).mean(0)
    inv_std = torch.rsqrt(variance + c.epsilon)
    y = (x - mean) * inv_std * scale + offset
    unbiased = variance * (count / max(count - 1, 1))
    m = c.momentum
    return [y, mean, inv_std, m * running_mean + (1 - m) * mean,
            m * running_variance + (1 - m) * unbiased]


@reference("BatchNorm", scale=at_least_one)
def batch_norm(c, *operands):
    return batch_norm_outputs(c, *operands)


@reference("BatchNormRelu", "BatchNormAddRelu", scale=at_least_one)
def batch_norm_relu(c, x, scale, offset, mean, variance, addend=0.0):
    outputs = batch_norm_outputs(c, x, scale, offset, mean, variance)
    y = outputs[0] + addend
    return [F.relu(y), *outputs[1:], bits(y)]


def by_sums(y, *inputs):
    """A variance by sums loses digits to the mean, which may be as large as four
    deviations."""
    return at_least_one(y) * 16


@reference("BatchNormBySums", scale=by_sums)
def batch_norm_by_sums(c, *operands):
    return batch_norm(c, *operands[:-2])


@reference("BatchNormReluBySums", "BatchNormAddReluBySums", scale=by_sums)
def batch_norm_relu_by_sums(c, *operands):
    return batch_norm_relu(c, *operands[:-2])


@reference("BatchNormApply", scale=at_least_one)
def batch_norm_apply(c, x, scale, offset, mean, inv_std):
    return (x - mean) * inv_std * scale + offset


@reference("BatchNormApplyRelu", "BatchNormApplyAddRelu", scale=at_least_one)
def batch_norm_apply_relu(c, x, scale, offset, mean, inv_std, addend=0.0):
    y = batch_norm_apply(c, x, scale, offset, mean, inv_std) + addend
    return [F.relu(y), bits(y)]


@reference("BatchNormInference", scale=at_least_one)
def batch_norm_inference(c, x, scale, offset, mean, variance):
    return (x - mean) * torch.rsqrt(variance + c.epsilon) * scale + offset


@reference("BatchNormGrad", scale=by_channels)
def batch_norm_grad(c, x, scale, mean, inv_std, dy):
    normal = (x - mean) * inv_std
    doffset, dscale = over_rows(dy), over_rows(dy * normal)
    count = x.numel() // max(1, x.shape[-1])
    dx = scale * inv_std * (dy - (doffset + normal * dscale) / max(count, 1))
    return [dx, dscale, doffset]


@reference("BatchNormReluGrad", "BatchNormAddReluGrad", scale=by_channels)
def batch_norm_relu_grad(c, x, scale, mean, inv_std, mask, *dys):
    dy = where(unbits(mask, tuple(x.shape)), sum(dys), 0.0)
    outputs = batch_norm_grad(c, x, scale, mean, inv_std, dy)
    return outputs + ([dy] if c.op == "BatchNormAddReluGrad" else [])


@reference("LayerNorm", scale=at_least_one)
def layer_norm(c, x, scale, offset):
    mean = x.mean(-1)
    variance = ((x - mean.unsqueeze(-1)) ** 2).mean(-1)
    inv_std = torch.rsqrt(variance + c.epsilon)
    y = (x - mean.unsqueeze(-1)) * inv_std.unsqueeze(-1) * scale + offset
    return [y, mean, inv_std]


@reference("LayerNormGrad", scale=by_channels)
def layer_norm_grad(c, x, scale, mean, inv_std, dy):
    normal = (x - mean.unsqueeze(-1)) * inv_std.unsqueeze(-1)
    g = dy * scale
    dx = inv_std.unsqueeze(-1) * (g - g.mean(-1, keepdim=True)
                                  - normal * (g * normal).mean(-1, keepdim=True))
    return [dx, over_rows(dy * normal), over_rows(dy)]


# --- Losses ------------------------------------------------------------------


@reference("Softmax")
def softmax(c, x):
    return torch.softmax(x, c.axis)


@reference("LogSoftmax")
def log_softmax(c, x):
    return torch.log_softmax(x, c.axis)


def smoothed(c, logits, labels):
    classes = logits.shape[-1]
    if c.op.startswith("Sparse"):
        labels = F.one_hot(labels.long(), classes).to(logits.dtype)
    return (1 - c.label_smoothing) * labels + c.label_smoothing / classes


@reference("SoftmaxCrossEntropy", "SparseSoftmaxCrossEntropy",
           scale=by_rows)
def cross_entropy(c, logits, labels):
    loss = -(smoothed(c, logits, labels) * torch.log_softmax(logits, -1)).sum(-1)
    largest = logits.amax(-1)
    scale = 1 / torch.exp(logits - largest.unsqueeze(-1)).sum(-1)
    return [loss, largest, scale]


def cross_entropy_gradient(c, logits, labels, largest, scale, dloss):
    labels = smoothed(c, logits, labels)
    probabilities = torch.exp(logits - largest.unsqueeze(-1)) * scale.unsqueeze(-1)
    return dloss.unsqueeze(-1) * (probabilities * labels.sum(-1, keepdim=True) - labels)


@reference("SoftmaxCrossEntropyGrad", "SparseSoftmaxCrossEntropyGrad",
           scale=by_rows)
def cross_entropy_grad(c, *operands):
    return cross_entropy_gradient(c, *operands)


@reference("SoftmaxCrossEntropyWithGrad", "SparseSoftmaxCrossEntropyWithGrad",
           scale=by_rows)
def cross_entropy_with_grad(c, logits, labels, dloss):
    outputs = cross_entropy(c, logits, labels)
    return outputs + [cross_entropy_gradient(c, logits, labels, *outputs[1:], dloss)]


@reference("SigmoidCrossEntropy", scale=lambda y, logits, labels: logits.abs() + 1)
def sigmoid_cross_entropy(c, logits, labels):
    return -labels * F.logsigmoid(logits) - (1 - labels) * F.logsigmoid(-logits)


@reference("L2Loss", scale=MAGNITUDES)
def l2_loss(c, x):
    return (x * x).sum() / 2


@reference("SquaredNorm", scale=MAGNITUDES)
def squared_norm(c, x):
    return (x * x).sum()


@reference("DropoutGrad", scale=MAGNITUDES)
def dropout_grad(c, dy, mask):
    return where(mask, dy / (1 - c.rate), 0.0)
