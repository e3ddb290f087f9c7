"""Random networks: losses, gradients, updates, and inference from frozen
variables, in all the ways in which a session can run them."""
import numpy as np
import torch

import reference
import reference_elementwise  # noqa: F401: these fill the list of references
import reference_nn  # noqa: F401
import reference_shape  # noqa: F401
import reference_update  # noqa: F401
from compare import difference, summary
from draw import Draw, dims
from driver import Refused, Value
from text import GraphText

VALUES = {"float32": 2e-4, "float64": 1e-9}
GRADIENTS = {"float32": 3e-3, "float64": 1e-8}
# Of a step in mixed precision, the relative error of a whole tensor: a sign that
# rounding turns changes what ReLU lets through, so only gross faults show.
MIXED = {"float16": 0.5, "bfloat16": 1.0}


WAYS = [{}, {"fuse": False}, {"executor": "dataflow"}, {"deterministic": True},
        {"precision": "float16"}, {"precision": "bfloat16"}]


class Network:
    """Nodes in order, each evaluated as it is added. `values` holds tensors of
    PyTorch by node and output."""

    def __init__(self, ops, d):
        self.ops, self.d, self.text = ops, d, GraphText(ops)
        self.dtype = d.pick(["float32", "float32", "float64"])
        self.feeds, self.variables, self.values = {}, {}, {}
        self.trained, self.updates, self.fetches = [], [], []
        self.count = 0

    def shape(self, x):
        return list(self.values[x].shape)

    def name(self, op):
        self.count += 1
        return f"{op.lower()}{self.count}"

    def feed(self, value, grad=False):
        name = self.text.placeholder(self.name("feed"), value.dtype, value.shape)
        self.feeds[name] = value
        return self._hold(name, value, grad)

    def variable(self, shape, lo=-0.5, hi=0.5, trained=True):
        value = self.d.values(self.dtype, shape, lo, hi, "plain")
        name = self.text.variable(self.name("variable"), value.dtype, value.shape)
        self.variables[name] = value
        self.trained += [name] if trained else []
        return self._hold(name, value, trained)

    def constant(self, value):
        name = self.text.constant(self.name("const"), value)
        return self._hold(name, value, False)

    def _hold(self, name, value, grad):
        wide = torch.from_numpy(np.array(
            value.wide() if value.dtype.startswith("float") else value.array))
        self.values[name] = wide.requires_grad_(True) if grad else wide
        return name

    def add(self, op, inputs, **attrs):
        name = self.text.add(self.name(op), op, inputs, attrs)
        full = {k: a["default"] for k, a in self.ops[op]["attrs"].items()}
        outputs = reference.evaluate(op, {**full, **attrs}, [self.values[i] for i in inputs])
        for i, y in enumerate(outputs):
            self.values[name if i == 0 else f"{name}:{i}"] = y
        return name

    def scalar(self, value):
        return self.constant(Value.of(self.dtype, value))


# --- Layers ------------------------------------------------------------------


def activation(net, x):
    op = net.d.pick(["Relu", "Relu", "Relu", "", "LeakyRelu", "Gelu", "Tanh", "Silu",
                     "Relu6", "Sigmoid", "Elu"])
    return net.add(op, [x]) if op else x


def norm(net, x, training):
    """Batch normalisation over the last dimension, or none."""
    d, channels = net.d, net.shape(x)[-1]
    if d.chance(0.3):
        return x
    vectors = [net.variable([channels], 0.5, 1.5), net.variable([channels]),
               net.variable([channels], trained=False),
               net.variable([channels], 0.5, 1.5, trained=False)]
    if not training:
        return net.add("BatchNormInference", [x, *vectors], epsilon=1e-3)
    y = net.add("BatchNorm", [x, *vectors], epsilon=1e-2, momentum=d.pick([0.9, 0.5]))
    for variable, new in zip(vectors[2:], (f"{y}:3", f"{y}:4")):
        net.updates.append((net.add("Assign", [variable, new]), variable, net.values[new]))
    return y


def conv(net, x, channels=None, stride=None, filter=None):
    d = net.d
    inputs = net.shape(x)[-1]
    channels = channels or d.pick([2, 3, 4, 8, 16])
    kernel = [1, 1] if d.chance(0.3) else [3, 3] if d.chance(0.7) else [d.integer(1, 3), 2]
    stride = stride or d.pick([1, 1, 1, 2])
    if d.chance(0.2) and filter is None:
        filter = net.variable([*kernel, inputs, d.pick([1, 1, 2])])
        return net.add("DepthwiseConv2D", [x, filter], strides=[stride, stride])
    groups = 2 if d.chance(0.15) and inputs % 2 == 0 and channels % 2 == 0 else 1
    filter = filter or net.variable([*kernel, inputs // groups, channels])
    y = net.add("Conv2D", [x, filter], strides=[stride, stride], groups=groups)
    return net.add("BiasAdd", [y, net.variable([channels])]) if d.chance(0.4) else y


def residual(net, x, training):
    """The addend may be the convolution's own input, or another's output."""
    d, channels = net.d, net.shape(x)[-1]
    y = conv(net, x, channels, 1)
    if net.shape(y)[-1] != channels:  # a depthwise multiplier
        return activation(net, y)
    y = norm(net, y, training)
    addend = x if d.chance(0.7) else activation(net, x)
    if d.chance(0.3):
        addend = norm(net, conv(net, x, channels, 1), training)
        addend = addend if net.shape(addend) == net.shape(y) else x
    y = net.add("Add", [y, addend] if d.chance(0.5) else [addend, y])
    y = activation(net, y)
    # A use of the addend behind the sum: nothing may have taken its place.
    return net.add("Add", [y, addend]) if d.chance(0.25) else y


def pool(net, x, training):
    d, size = net.d, net.shape(x)[1:3]
    window = [min(d.pick([2, 3]), s) for s in size]
    op = d.pick(["MaxPool", "AvgPool"])
    return net.add(op, [x], window=window, strides=[d.pick([1, 2]), 2],
                   padding=d.pick(["SAME", "VALID"]))


def block(net, x, training):
    return activation(net, norm(net, conv(net, x), training))


def twice(net, x, training):
    """The same filter used twice."""
    channels = net.shape(x)[-1]
    filter = net.variable([3, 3, channels, channels])
    y = net.add("Relu", [net.add("Conv2D", [x, filter])])
    return net.add("Conv2D", [y, filter])


def dense(net, x, units=None):
    d = net.d
    inputs = net.shape(x)[-1]
    units = units or d.pick([3, 8, 16, 33])
    transposed = d.chance(0.2)
    weights = net.variable([units, inputs] if transposed else [inputs, units])
    y = net.add("MatMul", [x, weights], transpose_b=transposed)
    if d.chance(0.8):
        y = net.add(d.pick(["Add", "BiasAdd"]), [y, net.variable([units])])
    return y


def dense_block(net, x, training):
    d = net.d
    y = dense(net, x, net.shape(x)[-1] if d.chance(0.5) else None)
    y = norm(net, y, training) if d.chance(0.3) else y
    if d.chance(0.3):
        units = net.shape(y)[-1:]
        y = net.add("LayerNorm", [y, net.variable(units, 0.5, 1.5), net.variable(units)],
                    epsilon=1e-2)
    y = activation(net, y)
    if net.shape(y) == net.shape(x) and d.chance(0.6):
        y = net.add("Add", [x, y])
    return y


def attention(net, x, training):
    """Rows attend to each other."""
    units = net.shape(x)[-1]
    q, k, v = (net.add("ExpandDims", [dense(net, x, units)], axis=0) for _ in range(3))
    scores = net.add("BatchMatMul", [q, k], transpose_b=True)
    weights = net.add("Softmax", [net.add("Mul", [scores, net.scalar(0.3)])])
    return net.add("Squeeze", [net.add("BatchMatMul", [weights, v])], axes=[0])


def loss(net, logits):
    d, (rows, classes) = net.d, net.shape(logits)
    kind = d.integer(0, 3)
    if kind == 0:
        labels = net.feed(d.indices(classes, [rows]))
        per_row = net.add("SparseSoftmaxCrossEntropy", [logits, labels],
                          label_smoothing=d.pick([0.0, 0.1]))
    elif kind == 1:
        labels = net.feed(d.values(net.dtype, [rows, classes], 0.1, 1, "plain"))
        per_row = net.add("SoftmaxCrossEntropy", [logits, labels])
    elif kind == 2:
        labels = net.feed(d.values(net.dtype, [rows, classes], 0, 1, "plain"))
        per_row = net.add("SigmoidCrossEntropy", [logits, labels])
    else:
        labels = net.feed(d.values(net.dtype, [rows, classes], -1, 1, "plain"))
        per_row = net.add("SquaredDifference", [logits, labels])
    total = net.add(d.pick(["Mean", "Sum"]), [per_row])
    if d.chance(0.3):
        decay = net.add("Mul", [net.add("L2Loss", [d.pick(net.trained)]), net.scalar(0.01)])
        total = net.add("Add", [total, decay])
    return total


def build(net, training):
    d = net.d
    images = d.chance(0.7)
    if images:
        size = [d.integer(5, 12), d.integer(5, 12)]
        shape = [d.pick([2, 3, 4]), *size, d.pick([1, 2, 3, 4, 8])]
    else:
        shape = [d.pick([2, 4, 7]), d.pick([3, 8, 16])]
    x = net.feed(d.values(net.dtype, shape, -1, 1, "plain"), grad=True)
    net.image, y = x, x
    kinds = [block, block, residual, residual, pool, twice] if images else \
        [dense_block, dense_block, attention]
    for _ in range(d.integer(1, 5)):
        if images and min(net.shape(y)[1:3]) < 3:
            break
        y = d.pick(kinds)(net, y, training)
    if images and d.chance(0.6):
        y = net.add("Mean", [y], axes=[1, 2])
    elif images:
        flat = [net.shape(y)[0], int(np.prod(net.shape(y)[1:]))]
        y = net.add("Reshape", [y, net.constant(dims(flat))])
    return dense(net, y, d.pick([2, 5, 10]))


# --- Cases -------------------------------------------------------------------


class NetworkCase:
    def __init__(self, ops, seed, index):
        self.d = d = Draw("network", seed, index)
        d.style, self.training = "plain", d.chance(0.65)
        self.net = net = Network(ops, d)
        self.logits = build(net, self.training)
        self.loss = loss(net, self.logits) if self.training else None
        self.shown, self.floor = net.text.text(), 0.1

    def check(self, driver):
        return self._train(driver) if self.training else self._infer(driver)

    def _infer(self, driver):
        faults = []
        for options in WAYS:
            for frozen in (False, True):
                try:
                    runs, _ = driver.run(self.net.text.text(), 2 * [
                        (self.net.feeds, [self.logits], [])], self.net.variables,
                        options=options, frozen=frozen)
                except Refused as error:
                    return [f"refused: {error}"]
                for run in runs:
                    fault = self._difference(self.net.values[self.logits], run[0], VALUES,
                                             options)
                    if fault:
                        faults.append(f"{options} frozen={frozen}: logits {fault}")
        return faults

    def _train(self, driver):
        net, faults = self.net, []
        wrt = [net.image] + net.trained
        slopes = torch.autograd.grad(net.values[self.loss], [net.values[n] for n in wrt],
                                     allow_unused=True)
        slopes = dict(zip(wrt, slopes))
        # Of a gradient that is nothing but cancellation, as of a bias in front of
        # a normalisation, errors are relative to the others.
        sizes = [s.pow(2).mean().sqrt().item() for s in slopes.values() if s is not None]
        self.floor = 0.1 * max(1.0, *sizes)
        for recompute in ("none", "norms", "all"):
            try:
                text, names = driver.differentiated(
                    net.text.text(), [{"ys": [self.loss], "xs": wrt, "recompute": recompute}])
                text, targets, fetches, kept = self._with_updates(text, dict(zip(wrt, names)))
                self.shown = text
                for options in WAYS:
                    if options.get("precision") and (net.dtype == "float64" or
                                                     recompute == "norms"):
                        continue
                    got, after = driver.run(text, [(net.feeds, fetches, targets)],
                                            net.variables, options=options)
                    where = f"{options} recompute={recompute}:"
                    faults += self._compare(got[0], after, slopes, kept, options, where)
            except Refused as error:
                return [f"recompute={recompute} refused: {error}"]
        return faults

    def _with_updates(self, text, gradients):
        """Plain gradient descent on the variables, in half the cases; then the
        gradients themselves are fetched only where they are not applied."""
        lines, targets = [text], [name for name, _, _ in self.net.updates]
        applied = self.d.chance(0.5)
        kept = [n for n, g in gradients.items()
                if g is not None and not (applied and n in self.net.trained)]
        if applied:
            lines.append('rate = Const() {value = float32[] {0.125}}')
            for i, name in enumerate(self.net.trained):
                if gradients[name] is not None:
                    lines.append(f"apply{i} = ApplySgd({name}, rate, {gradients[name]})")
                    targets.append(f"apply{i}")
        fetches = [self.loss, self.logits] + [gradients[n] for n in kept]
        return "\n".join(lines) + "\n", targets, fetches, kept

    def _compare(self, got, after, slopes, kept, options, where):
        net, faults = self.net, []
        pairs = [("loss", net.values[self.loss], got[0], VALUES),
                 ("logits", net.values[self.logits], got[1], VALUES)]
        for name, value in zip(kept, got[2:]):
            pairs.append((f"gradient of {name}", slopes[name], value, GRADIENTS))
        moved = {v: new for _, v, new in net.updates}
        for name, value in after.items():
            want = net.values[name]
            if name in moved:
                want = moved[name]
            elif name in net.trained and name not in kept and slopes[name] is not None:
                want = want - 0.125 * slopes[name]
            pairs.append((f"variable {name}", want, value, GRADIENTS))
        for what, want, value, tolerances in pairs:
            want = torch.zeros(value.shape, dtype=torch.float64) if want is None else want
            fault = self._difference(want, value, tolerances, options)
            if fault:
                faults.append(f"{where} {what} {fault}")
        return faults

    def _difference(self, want, value, tolerances, options):
        want = want.detach().numpy()
        mixed = options.get("precision")
        if mixed and value.dtype == "float32":
            error = np.linalg.norm(value.wide() - want)
            size = np.linalg.norm(want) + self.floor * np.sqrt(want.size)
            return None if error <= MIXED[mixed] * size else \
                f"differs by {error / size:.3g} of its norm"
        size = max(self.floor, float(np.abs(want).max()) if want.size else 0)
        return difference(want, value, self.net.dtype, size, tolerances[value.dtype])

    def reproduction(self):
        lines = ["graph:", *("    " + x[:300] for x in self.shown.splitlines())]
        lines += [f"variable {n}: {summary(v, 6)}" for n, v in self.net.variables.items()]
        return lines + [f"feed {n}: {summary(v, 6)}" for n, v in self.net.feeds.items()]


def missing(ops):
    return []


def cases(ops, seed, long):
    for index in range(1500 if long else 100):
        yield str(index), lambda i=index: NetworkCase(ops, seed, i)


def notes():
    return ""
