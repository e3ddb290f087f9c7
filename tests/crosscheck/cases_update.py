"""Random cases of ops that update variables."""
from cases import Case, dtype_of, makes
from driver import HALVES, Value
from reference_update import RULES

@makes("Assign", "AssignAdd", "AssignSub")
def assign(d, op):
    shape, T = d.shape(), dtype_of(d, op)
    inputs = [d.values(T, shape), d.values(T, shape)]
    if d.chance(0.5):
        inputs.append(d.values("bool", []))
    return _updating(d, op, {}, inputs, 1)


def _updating(d, op, attrs, inputs, variables):
    roles = ["variable" if i < variables else "feed" for i in range(len(inputs))]
    return Case(op["name"], attrs, inputs, roles, known=True)


@makes("AssignList")
def assign_list(d, op):
    n, T = d.integer(1, 4), dtype_of(d, op)
    shapes = [d.shape() for _ in range(n)]
    inputs = [d.values(T, s) for s in shapes + shapes] + [d.values("bool", [])]
    return _updating(d, op, {"variables": n}, inputs, n)


RATES = {"momentum": [0.9, 0.0, 0.5], "decay": [0.9, 0.5], "beta1": [0.9, 0.5],
         "beta2": [0.999, 0.9], "epsilon": [1e-8, 1e-3], "weight_decay": [0.01, 0.0, 0.1],
         "gradient_decay": [0.0, 0.25]}


def _optimizer_attrs(d, op):
    attrs = {name: d.pick(RATES[name]) for name in op["attrs"] if name in RATES}
    if "nesterov" in op["attrs"]:
        attrs["nesterov"] = d.chance(0.5)
    return attrs


def _state(d, T, shape, slots, name):
    """A variable and its slots; what a root is taken of is positive."""
    square = {"ApplyRmsProp": 0, "ApplyRmsPropMomentum": 0, "ApplyAdagrad": 0,
              "ApplyAdam": 1, "ApplyAdamW": 1}.get(name, -1)
    return [d.values(T, shape)] + [
        d.values(T, shape, 0.1, 2) if i == square else d.values(T, shape, -1, 1)
        for i in range(slots)]


def _schedule(d, scalars):
    rate = Value.of("float32", d.pick([0.1, 0.01, 1.0]))
    return [rate, Value.of("int64", d.pick([1, 3, 1000]))][:scalars]


@makes(*RULES)
def optimizer(d, op):
    d.style = "plain"
    _, variables, scalars = RULES[op["name"]]
    shape, T = d.shape(), dtype_of(d, op)
    inputs = _state(d, T, shape, variables - 1, op["name"]) + _schedule(d, scalars)
    inputs.append(d.values(T, shape))
    if d.chance(0.4):
        inputs.append(d.values("bool", []))
    return _updating(d, op, _optimizer_attrs(d, op), inputs, variables)


def _few(d):
    """Of slices, whose sums would else grow, and so would their rounding."""
    return [min(s, 4) for s in d.shape(0, 2)]


def _slices_of(d, rows, slices):
    """Which of `rows` rows each slice belongs to, -1: to none."""
    low = -1 if d.chance(0.5) or rows == 0 else 0
    high = max(low, min(rows, d.pick([1, 3, rows])) - 1)
    array = d.rng.integers(low, high + 1, slices)
    return Value.of(d.pick(["int32", "int64"]), array)


@makes(*(name + "Rows" for name in RULES))
def optimizer_rows(d, op):
    d.style = "plain"
    name = op["name"][:-len("Rows")]
    _, variables, scalars = RULES[name]
    shape, slices, T = d.shape(1, 3), _few(d), dtype_of(d, op)
    inputs = _state(d, T, shape, variables - 1, name) + _schedule(d, scalars)
    inputs += [d.values(T, slices + shape[1:]), _slices_of(d, shape[0], slices)]
    if d.chance(0.4):
        inputs.append(d.values("bool", []))
    return _updating(d, op, _optimizer_attrs(d, op), inputs, variables)


@makes("SumRows")
def sum_rows(d, op):
    d.style = "plain"
    slices, T, limit = _few(d), dtype_of(d, op), d.integer(0, 20)
    return ({"limit": limit},
            [_slices_of(d, limit, slices), d.values(T, slices + d.shape(0, 2))])


@makes(*(name + "List" for name in RULES))
def optimizer_list(d, op):
    d.style = "plain"
    name = op["name"][:-len("List")]
    _, variables, scalars = RULES[name]
    n, T = d.integer(1, 4), dtype_of(d, op)
    states = [_state(d, T, d.shape(), variables - 1, name) for _ in range(n)]
    inputs = [state[k] for k in range(variables) for state in states]
    for state in states:
        inputs.append(d.values(d.pick([T, T, *HALVES]), state[0].shape))
    inputs += _schedule(d, scalars)
    inputs += [Value.of("float32", d.pick([1.0, 0.3])), Value.of("bool", d.chance(0.8))]
    attrs = {**_optimizer_attrs(d, op), "variables": n, "decayed": d.integer(0, n)}
    return _updating(d, op, attrs, inputs, n * variables)
