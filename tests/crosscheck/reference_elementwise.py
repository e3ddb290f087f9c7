"""References of elementwise ops."""
import math

import numpy as np
import torch
import torch.nn.functional as F

from reference import (EACH, EXACT, MAGNITUDES, REFERENCES, at_least_one, reference,
                       where)

SELU_SCALE, SELU_ALPHA = 1.0507009873554805, 1.6732632423543772
TORCH = {"float64": torch.float64, "float32": torch.float64,
         "float16": torch.float64, "bfloat16": torch.float64,
         "int8": torch.int8, "uint8": torch.uint8, "int32": torch.int32,
         "int64": torch.int64, "bool": torch.bool}

SIMPLE = {
    "Neg": torch.neg, "Abs": torch.abs, "Square": lambda x: x * x,
    "Exp": torch.exp, "Expm1": torch.expm1, "Log": torch.log,
    "Log1p": torch.log1p, "Sqrt": torch.sqrt, "Rsqrt": torch.rsqrt,
    "Reciprocal": torch.reciprocal, "Sin": torch.sin, "Cos": torch.cos,
    "Tan": torch.tan, "Asin": torch.asin, "Acos": torch.acos,
    "Atan": torch.atan, "Sinh": torch.sinh, "Cosh": torch.cosh,
    "Tanh": torch.tanh, "Erf": torch.erf, "Floor": torch.floor,
    "Ceil": torch.ceil, "Round": torch.round, "IsNan": torch.isnan,
    "IsInf": torch.isinf, "IsFinite": torch.isfinite,
    "LogicalNot": torch.logical_not,
    "Sigmoid": torch.sigmoid, "Relu": F.relu, "Relu6": F.relu6,
    "Softplus": lambda x: -F.logsigmoid(-x),
    # Their limits at the infinities, where PyTorch divides or multiplies them.
    "Softsign": lambda x: where(torch.isinf(x), x.sign(), F.softsign(x)),
    "Silu": lambda x: _from_the_left(x, F.silu(x)),
    "Add": torch.add, "Sub": torch.sub, "Mul": torch.mul,
    "SquaredDifference": lambda a, b: (a - b) * (a - b),
    "Atan2": torch.atan2, "Equal": torch.eq, "NotEqual": torch.ne,
    "Less": torch.lt, "LessEqual": torch.le, "Greater": torch.gt,
    "GreaterEqual": torch.ge, "LogicalAnd": torch.logical_and,
    "LogicalOr": torch.logical_or, "LogicalXor": torch.logical_xor,
    # Gradients of activations, which are differentiated in turn.
    "SoftplusGrad": lambda dy, x: dy * torch.sigmoid(x),
    "ReluGrad": lambda dy, y: where(y > 0, dy, 0.0),
    "Relu6Grad": lambda dy, y: where((y > 0) & (y < 6), dy, 0.0),
}
CHOICES = {
    "Identity": torch.clone, "StopGradient": lambda x: x.detach().clone(),
    "Copy": torch.clone,
    # Over one worker.
    "AllReduce": torch.clone, "AllGather": torch.clone, "ReduceScatter": torch.clone,
    "AllToAll": torch.clone, "Broadcast": torch.clone, "Reduce": torch.clone,
    "Maximum": torch.maximum, "Minimum": torch.minimum,
    "Select": torch.where,
}
for functions, scale in ((SIMPLE, EACH), (CHOICES, EXACT)):
    for name, function in functions.items():
        reference(name, scale=scale)(lambda c, *x, f=function: f(*x))


def _from_the_left(x, y):
    return where(x == -math.inf, 0.0, y)


@reference("Sign", scale=EACH)
def sign(c, x):
    return where(torch.isnan(x), x, torch.sign(x)) if x.is_floating_point() \
        else torch.sign(x)


@reference("Clip", scale=EACH)
def clip(c, x):
    if x.is_floating_point():
        # The gradient flows at the bounds, too; that of torch.clamp does in some
        # versions.
        y = where(x < c.lo, c.lo, x)
        return where(y > c.hi, c.hi, y)
    lo, hi = (None if math.isinf(b) else int(b) for b in (c.lo, c.hi))
    return x if lo is None and hi is None else torch.clamp(x, lo, hi)


@reference("LeakyRelu", scale=EACH)
def leaky_relu(c, x):
    return where(x > 0, x, c.alpha * x)


@reference("LeakyReluGrad", scale=EACH)
def leaky_relu_grad(c, dy, y):
    return where(y > 0, dy, c.alpha * dy)


@reference("Elu", scale=EACH)
def elu(c, x):
    return where(x > 0, x, c.alpha * torch.expm1(where(x > 0, 0.0, x)))


@reference("TanhGrad", scale=lambda z, dy, y: dy.abs())
def tanh_grad(c, dy, y):
    return dy * (1 - y * y)


@reference("SigmoidGrad", scale=lambda z, dy, y: dy.abs())
def sigmoid_grad(c, dy, y):
    return dy * y * (1 - y)


@reference("Selu", scale=EACH)
def selu(c, x):
    return SELU_SCALE * where(x > 0, x, SELU_ALPHA * torch.expm1(where(x > 0, 0.0, x)))


@reference("EluGrad", scale=EACH)
def elu_grad(c, dy, x):
    return where(x > 0, dy, dy * c.alpha * torch.exp(where(x > 0, 0.0, x)))


@reference("SeluGrad", scale=EACH)
def selu_grad(c, dy, x):
    slope = where(x > 0, 1.0, SELU_ALPHA * torch.exp(where(x > 0, 0.0, x)))
    return dy * SELU_SCALE * slope


@reference("Gelu", scale=MAGNITUDES)
def gelu(c, x):
    if c.approximate:
        u = 2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)
        return _from_the_left(x, x * torch.sigmoid(u))
    return _from_the_left(x, x * 0.5 * torch.special.erfc(-x / math.sqrt(2)))


@reference("GeluGrad")
def gelu_grad(c, dy, x):
    if c.approximate:
        k = 2 * math.sqrt(2 / math.pi)
        s = torch.sigmoid(k * (x + 0.044715 * x ** 3))
        return dy * (s + x * s * (1 - s) * k * (1 + 3 * 0.044715 * x * x))
    cdf = 0.5 * torch.special.erfc(-x / math.sqrt(2))
    return dy * (cdf + x * torch.exp(-x * x / 2) / math.sqrt(2 * math.pi))


@reference("SiluGrad")
def silu_grad(c, dy, x):
    s = torch.sigmoid(x)
    return dy * s * (1 + x * (1 - s))


@reference("Cast", "CastList", scale=EXACT)
def cast(c, *xs):
    return [_cast(x, c.to) for x in xs]


def _cast(x, to):
    target = TORCH[to]
    if to == "bool":
        return x != 0
    if target == torch.float64 or not x.is_floating_point():
        return x.to(target)
    # To the nearest integer in range, NaN to 0; 2^63 is not an int64.
    info = np.iinfo(to)
    values = np.trunc(np.nan_to_num(x.detach().numpy(), nan=0.0, posinf=1e300,
                                    neginf=-1e300))
    whole = [max(info.min, min(info.max, int(v))) for v in values.reshape(-1)]
    return torch.from_numpy(np.array(whole, dtype=to).reshape(values.shape))


@reference("TurnFilters", scale=EXACT)
def turn_filters(c, *filters):
    order = [3, 0, 1, 2] if c.layout == "OHWI" else [1, 2, 3, 0]
    return [_cast(filter.permute(order), c.to) for filter in filters]


@reference("CastPad", scale=EXACT)
def cast_pad(c, x):
    more = list(x.shape)
    more[c.axis] = c.size - x.shape[c.axis]
    return torch.cat([x, torch.zeros(more, dtype=x.dtype)], c.axis)


@reference("Div", scale=EACH)
def div(c, a, b):
    if a.is_floating_point():
        return a / b
    return _integer(a, b, lambda n, d: abs(n) // abs(d) * (1 if n * d >= 0 else -1))


def _integer(a, b, function):
    """Element by element, without bounds, then wrapped around; 0 for b = 0."""
    a, b = torch.broadcast_tensors(a, b)
    bits = torch.iinfo(a.dtype).bits
    unsigned = a.dtype == torch.uint8

    def one(n, d):
        value = (0 if d == 0 else function(n, d)) % (1 << bits)
        return value - (1 << bits) if value >> (bits - 1) and not unsigned else value

    values = [one(n, d) for n, d in zip(a.reshape(-1).tolist(), b.reshape(-1).tolist())]
    return torch.tensor(values, dtype=a.dtype).reshape(a.shape)


@reference("FloorDiv", scale=EACH)
def floor_div(c, a, b):
    if a.is_floating_point():
        return _as_numpy(c, np.floor_divide, a, b)
    return _integer(a, b, lambda n, d: n // d)


def _as_numpy(c, function, a, b):
    """In the compute type: a quotient may round up to an integer."""
    with np.errstate(all="ignore"):
        y = function(*(x.detach().numpy().astype(c.compute) for x in (a, b)))
    return torch.from_numpy(np.asarray(y, dtype=np.float64))


@reference("Mod", scale=lambda y, a, b: a.abs() + b.abs())
def mod(c, a, b):
    if not a.is_floating_point():
        return _integer(a, b, lambda n, d: n % d)
    y = _as_numpy(c, np.mod, a, b)
    if a.requires_grad:  # of a - b floor(a / b)
        quotient = floor_div(c, a, b)
        y = y + (a - a.detach()) - (b - b.detach()) * quotient
    return y


@reference("Pow", scale=EACH)
def power(c, a, b):
    if a.is_floating_point():
        return torch.pow(a, b)
    return _integer_power(a, b)


def _integer_power(a, b):
    a, b = torch.broadcast_tensors(a, b)
    bits = torch.iinfo(a.dtype).bits
    unsigned = a.dtype == torch.uint8

    def one(n, e):
        if e < 0:  # 1 / n^-e, towards zero
            value = 1 if n == 1 or (n == -1 and e % 2 == 0) else -1 if n == -1 else 0
        else:
            value = pow(n, e, 1 << bits)
        value %= 1 << bits
        return value - (1 << bits) if value >> (bits - 1) and not unsigned else value

    values = [one(n, e) for n, e in zip(a.reshape(-1).tolist(), b.reshape(-1).tolist())]
    return torch.tensor(values, dtype=a.dtype).reshape(a.shape)


@reference("AddN", scale=MAGNITUDES)
def add_n(c, *terms):
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total.clone()


@reference("AllFinite")
def all_finite(c, *tensors):
    return torch.tensor(all(bool(torch.isfinite(t).all()) for t in tensors))


@reference("AllFiniteScaled")
def all_finite_scaled(c, scale, *tensors):
    products = [(t * scale).to(torch.float32) for t in tensors]
    return torch.tensor(all(bool(torch.isfinite(p).all()) for p in products))


def run_program(program, inputs):
    """The values of a Fused op's program (engine/semantics/fused_program.h)."""
    values = list(inputs)
    for step in filter(None, (s.strip() for s in program.split(";"))):
        function, operands = step.rstrip(")").split("(")
        function, _, params = function.partition("<")
        params = [float(p) for p in params.rstrip(">").split(",") if p]
        names = ("lo", "hi") if function == "Clip" else ("alpha",)
        attrs = dict(zip(names, params), approximate="Tanh" in function)
        values.append(_function(function.replace("GeluTanh", "Gelu"), attrs,
                                [values[int(v)] for v in operands.split(",")]))
    return values


def _function(name, params, operands):
    from reference import Node  # the attributes of a step
    outputs = REFERENCES[name](Node(name, params, operands), *operands)
    return outputs[0] if isinstance(outputs, list) else outputs


@reference("Fused", scale=at_least_one)
def fused(c, *inputs):
    values = run_program(c.program, inputs)
    return [torch.broadcast_to(values[i], c.shape).clone() for i in c.outputs]


def _summed(y, *inputs):
    """Up to 100,000 elements go into a sum."""
    return at_least_one(y) * 100


@reference("FusedSum", scale=_summed)
def fused_sum(c, *inputs):
    outputs = fused(c, *inputs)
    last = outputs[-1]
    count = math.prod(c.sum_shape)
    rows = last.reshape(-1, count).sum(0) if c.sum == "leading" else \
        last.reshape(count, -1).sum(1)
    outputs[-1] = rows.reshape(c.sum_shape) * c.sum_scale
    return outputs
