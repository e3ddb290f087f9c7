"""References of ops that update variables. They return the node's output, the
first variable's new value, and then the new values of all that it updates."""
import torch

from reference import EACH, at_least_one, reference


def _applied(c, count):
    """Whether the optional last operand lets the update happen."""
    return len(c.inputs) <= count or bool(c.inputs[count])


def _result(new):
    return [new[0].clone(), *new]


@reference("Assign", "AssignAdd", "AssignSub", scale=EACH)
def assign(c, variable, value, apply=None):
    if not _applied(c, 2):
        return _result([variable])
    new = {"Assign": lambda: value, "AssignAdd": lambda: variable + value,
           "AssignSub": lambda: variable - value}[c.op]()
    return _result([new.clone()])


@reference("AssignList", scale=EACH)
def assign_list(c, *tensors):
    n = c.variables
    return _result(list(tensors[n:2 * n] if tensors[-1] else tensors[:n]))


# (attributes, slots..., learning rate, step, variable, gradient) to the new
# variable and slots.
def _sgd(c, rate, step, v, g):
    return [v - rate * g]


def _momentum(c, rate, step, v, velocity, g):
    velocity = c.momentum * velocity + g
    return [v - rate * (g + c.momentum * velocity if c.nesterov else velocity), velocity]


def _rms_prop(c, rate, step, v, square, g):
    square = c.decay * square + (1 - c.decay) * g * g
    return [v - rate * g / (torch.sqrt(square) + c.epsilon), square]


def _rms_prop_momentum(c, rate, step, v, square, velocity, g):
    square = c.decay * square + (1 - c.decay) * g * g
    velocity = c.momentum * velocity + g / (torch.sqrt(square) + c.epsilon)
    return [v - rate * velocity, square, velocity]


def _adagrad(c, rate, step, v, accumulator, g):
    accumulator = accumulator + g * g
    return [v - rate * g / (torch.sqrt(accumulator) + c.epsilon), accumulator]


def _adam(c, rate, step, v, m, s, g):
    m = c.beta1 * m + (1 - c.beta1) * g
    s = c.beta2 * s + (1 - c.beta2) * g * g
    corrected = m / (1 - c.beta1 ** step)
    return [v - rate * corrected / (torch.sqrt(s / (1 - c.beta2 ** step)) + c.epsilon), m, s]


def _adam_w(c, rate, step, v, m, s, g):
    return _adam(c, rate, step, v - rate * c.weight_decay * v, m, s, g)


RULES = {"ApplySgd": (_sgd, 1, 1), "ApplyMomentum": (_momentum, 2, 1),
         "ApplyRmsProp": (_rms_prop, 2, 1),
         "ApplyRmsPropMomentum": (_rms_prop_momentum, 3, 1),
         "ApplyAdagrad": (_adagrad, 2, 1), "ApplyAdam": (_adam, 3, 2),
         "ApplyAdamW": (_adam_w, 3, 2)}


@reference(*RULES, scale=at_least_one)
def optimizer(c, *operands):
    rule, variables, scalars = RULES[c.op]
    if not _applied(c, variables + scalars + 1):
        return _result(list(operands[:variables]))
    rate, *step = [s.item() for s in operands[variables:variables + scalars]]
    gradient = operands[variables + scalars]
    return _result(rule(c, rate, *(step or [0]), *operands[:variables], gradient))


@reference(*(name + "Rows" for name in RULES), scale=at_least_one)
def optimizer_rows(c, *operands):
    rule, variables, scalars = RULES[c.op[:-len("Rows")]]
    new = [t.clone() for t in operands[:variables]]
    if not _applied(c, variables + scalars + 2):
        return _result(new)
    rate, *step = [s.item() for s in operands[variables:variables + scalars]]
    slices, rows = operands[variables + scalars:variables + scalars + 2]
    width = new[0].shape[1:]
    slices, rows = slices.reshape(rows.numel(), *width), rows.reshape(-1)
    for row in sorted(set(rows.tolist()) - {-1}):
        gradient = slices[rows == row].sum(0)
        parts = rule(c, rate, *(step or [0]), *(t[row].clone() for t in new), gradient)
        for t, part in zip(new, parts):
            t[row] = part
    return _result(new)


@reference("SumRows", scale=at_least_one)
def sum_rows(c, rows, values):
    flat = rows.reshape(-1)
    slices = values.reshape(flat.numel(), *values.shape[rows.dim():])
    first, sums = torch.full_like(flat, -1), torch.zeros_like(slices)
    for row in sorted(set(flat.tolist()) - {-1}):
        at = int((flat == row).nonzero()[0])
        first[at], sums[at] = row, slices[flat == row].sum(0)
    return first.reshape(rows.shape), sums.reshape(values.shape)


@reference(*(name + "List" for name in RULES), scale=at_least_one)
def optimizer_list(c, *operands):
    rule, variables, scalars = RULES[c.op[:-len("List")]]
    n = c.variables
    kinds = [operands[k * n:(k + 1) * n] for k in range(variables + 1)]
    rate, *step, scale, apply = [s.item() for s in operands[(variables + 1) * n:]]
    if not apply:
        return _result([t for kind in kinds[:-1] for t in kind])
    new = []
    for i in range(n):
        gradient = kinds[-1][i] * scale
        if i < c.decayed:
            gradient = gradient + c.gradient_decay * kinds[0][i]
        state = [kind[i] for kind in kinds[:-1]]
        new.append(rule(c, rate, *(step or [0]), *state, gradient))
    return _result([one[k] for k in range(variables) for one in new])
