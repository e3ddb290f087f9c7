"""Single nodes against their references: values, gradients, second gradients."""
import numpy as np
import torch

import cases as makers
import cases_nn  # noqa: F401: these fill the list of makers
import cases_shape  # noqa: F401
import cases_update  # noqa: F401
import random_ops
import reference
import reference_elementwise  # noqa: F401: these fill the list of references
import reference_nn  # noqa: F401
import reference_shape  # noqa: F401
import reference_update  # noqa: F401
from compare import EPSILON, difference, summary
from draw import Draw, compute_type
from driver import FLOATS, Refused, Value
from text import GraphText

# Of values: a few units in the last place of the compute type, and one rounding
# to the result's. Gradients are several nodes, each rounded.
VALUES = {"float64": 64, "float32": 16, "float16": 3, "bfloat16": 3}
GRADIENTS = {"float64": 1e-9, "float32": 1e-3, "float16": 6e-2, "bfloat16": 0.4}
# Smaller gradients may be what is left of larger terms.
LEAST = {"float64": 1e-3, "float32": 0.05, "float16": 1.0, "bfloat16": 1.0}


def missing(ops):
    """Ops of the table that nothing is known of, and the reverse."""
    faults = []
    for name in ops:
        known = name in reference.REFERENCES or name in random_ops.CHECKS
        if not known and name not in reference.WITHOUT:
            faults.append(f"{name}: no reference, and no reason for having none")
        if known and name not in makers.MAKERS:
            faults.append(f"{name}: no cases")
    listed = {*reference.REFERENCES, *reference.WITHOUT, *random_ops.CHECKS}
    return faults + [f"{name}: not in the table" for name in listed - set(ops)]


def names(ops):
    return [n for n in ops if n not in reference.WITHOUT]


class OpCase:
    """One case, made from its name, seed and number."""

    def __init__(self, ops, name, seed, index):
        self.record, self.table = ops[name], ops
        self.d = d = Draw(name, seed, index)
        self.case = case = makers.make(d, self.record)
        self.attrs = {key: attr["default"] for key, attr in self.record["attrs"].items()}
        self.attrs.update(case.attrs)
        special = d.style == "special"
        self.roles = case.roles or [
            "constant" if self._is_shape(i) or d.chance(0.15)
            else "feed" for i, v in enumerate(case.inputs)]
        self.options = {"fuse": d.chance(0.5), "simplify": d.chance(0.7),
                        "executor": d.pick(["auto", "serial", "dataflow"])}
        self.unknown = not case.known and d.chance(0.25)
        self.differentiated = [] if special or "variable" in self.roles else [
            i for i, v in enumerate(case.inputs) if v.dtype in FLOATS]
        self.twice = d.chance(0.5)
        self.report = ('', {}, {}, [], self.options)

    def _is_shape(self, i):
        """Whether input i gives a shape, which must be a constant."""
        args = self.record["inputs"]
        arg = args[min(i, len(args) - 1)]
        return arg["name"].endswith("shape") or arg["name"] == "shapes"

    def reproduction(self):
        return reproduction(self.report)

    # -- What should come out -------------------------------------------------

    def wanted(self):
        """Outputs, gradients by input, second gradients by input and dy, all of
        PyTorch; and what errors of the outputs are relative to."""
        inputs = [torch.from_numpy(np.array(v.wide() if v.dtype in FLOATS else v.array))
                  for v in self.case.inputs]
        for i in self.differentiated:
            inputs[i].requires_grad_(True)
        compute = compute_type(next((v.dtype for v in self.case.inputs
                                     if v.dtype in FLOATS), "float64"))
        name = self.record["name"]
        outputs = reference.evaluate(name, self.attrs, inputs, compute)
        with torch.no_grad():
            sizes = reference.magnitudes(name, self.attrs, inputs, outputs)
        return inputs, outputs, sizes

    def gradients(self, inputs, outputs, seeds, second):
        floats = [y for y in outputs if y.is_floating_point()]
        pairs = [(y, s) for y, s in zip(floats, seeds) if s is not None and y.requires_grad]
        if not pairs:
            return [None] * len(self.differentiated), None
        xs = [inputs[i] for i in self.differentiated]
        total = sum((y * s).sum() for y, s in pairs)
        first = torch.autograd.grad(total, xs, create_graph=True, allow_unused=True)
        terms = [(g * r).sum() for g, r in zip(first, second)
                 if g is not None and g.requires_grad]
        wrt = xs + [s for s in seeds if s is not None]
        if not terms:
            return first, [None] * len(wrt)
        return first, torch.autograd.grad(sum(terms), wrt, allow_unused=True)

    # -- What does ------------------------------------------------------------

    def graph(self):
        text = GraphText(self.table)
        feeds, variables, operands = {}, {}, []
        for i, (value, role) in enumerate(zip(self.case.inputs, self.roles)):
            name = f"x{i}"
            operands.append(name)
            if role == "constant":
                text.constant(name, value)
            elif role == "variable":
                text.variable(name, value.dtype, value.shape)
                variables[name] = value
            else:
                shape = [None] * len(value.shape) if self.unknown else value.shape
                text.placeholder(name, value.dtype, shape)
                feeds[name] = value
        text.add("y", self.record["name"], operands, self.case.attrs)
        return text, feeds, variables

    def check(self, driver):
        """A list of faults. Fills self.report with how to see them again."""
        if self.record["name"] in random_ops.CHECKS:
            return random_ops.check(self, driver)
        inputs, outputs, sizes = self.wanted()
        text, feeds, variables = self.graph()
        updated = outputs[1:] if variables else []
        outputs = outputs[:1] if variables else outputs
        names = ["y" if i == 0 else f"y:{i}" for i in range(len(outputs))]
        seeds, second, requests = self._seeds(text, feeds, outputs, names)
        count = len(self.differentiated)
        fetches = names + [f"@{k}" for k in range(sum(len(r["xs"]) for r in requests))]
        self.report = (text.text(), feeds, variables, requests, self.options)
        try:
            runs, after = driver.run(text.text(), [(feeds, fetches, ["y"] if variables else [])],
                                     variables, requests, self.options)
        except Refused as error:
            if self.unknown and "known" in str(error):
                self.unknown = False
                return self.check(driver)
            return [f"refused: {error}"]
        got = runs[0]
        faults = self._values(outputs, sizes, got, names)
        for i, (want, name) in enumerate(zip(updated, variables)):
            faults += self._one(want, after[name], sizes[1 + i], f"variable {name}")
        if requests:
            first, then = self.gradients(inputs, outputs, seeds, second)
            faults += self._slopes(first, got[len(names):len(names) + count], "gradient of x")
            if len(requests) > 1 and then is not None:
                faults += self._slopes(then, got[len(names) + count:], "second gradient ")
        return faults

    def _seeds(self, text, feeds, outputs, names):
        """Random dy for some of the outputs, as placeholders; the requests for
        gradients."""
        if not self.differentiated:
            return [], [], []
        d, seeds, chosen = self.d, [], []
        floats = [(y, n) for y, n in zip(outputs, names) if y.is_floating_point()]
        keep = set(d.subset(range(len(floats)), 1))
        for k, (y, name) in enumerate(floats):
            if k not in keep:
                seeds.append(None)
                continue
            value = d.values(self._dtype(name), list(y.shape), -1, 1, "plain")
            text.placeholder(f"dy{k}", value.dtype, value.shape)
            feeds[f"dy{k}"] = value
            seeds.append(torch.from_numpy(value.wide()).requires_grad_(True))
            chosen.append((name, f"dy{k}"))
        if not chosen:
            return [], [], []
        xs = [f"x{i}" for i in self.differentiated]
        requests = [{"ys": [n for n, _ in chosen], "xs": xs, "seeds": [s for _, s in chosen]}]
        if not self.record["differentiable"]:
            return seeds, [], requests
        second = []
        for i in self.differentiated:
            value = d.values(self.case.inputs[i].dtype, self.case.inputs[i].shape, -1, 1,
                             "plain")
            second.append(torch.from_numpy(value.wide()))
            if self.twice:
                text.placeholder(f"r{i}", value.dtype, value.shape)
                feeds[f"r{i}"] = value
        if self.twice:
            requests.append({"ys": [f"@{k}" for k in range(len(xs))],
                             "seeds": [f"r{i}" for i in self.differentiated],
                             "xs": xs + [s for _, s in chosen]})
        return seeds, second, requests

    def _dtype(self, name):
        """The dtype of output `name`, as the op's record has it."""
        args = self.record["outputs"]
        index = int(name.partition(":")[2] or 0)
        kind = args[min(index, len(args) - 1)]["type"]
        floats = [v.dtype for v in self.case.inputs]
        for arg, value in zip(self.record["inputs"], self.case.inputs):
            if arg["type"] == kind:
                return value.dtype
        if kind == "compute T":
            return compute_type(floats[0])
        return self.attrs.get(kind, floats[0] if kind in ("T", "T or half") else kind)

    def _values(self, outputs, sizes, got, names):
        faults = []
        for want, size, value, name in zip(outputs, sizes, got, names):
            faults += self._one(want, value, size, name)
        return faults

    def _one(self, want, value, size, name):
        dtype = self._dtype(name) if name.startswith("y") else value.dtype
        compute = compute_type(dtype)
        widest = max((EPSILON[v.dtype] for v in self.case.inputs
                      if v.dtype in ("float32", "float64")), default=0)
        tolerance = VALUES.get(dtype, 0) * EPSILON.get(dtype, 0)
        tolerance += VALUES.get(compute, 0) * max(EPSILON.get(compute, 0), widest)
        size = None if size is None else size.detach().numpy()
        fault = difference(want.detach().numpy(), value, dtype, size, tolerance)
        return [f"{name} {fault}"] if fault else []

    def _slopes(self, want, got, what):
        faults = []
        least = max(GRADIENTS[self.case.inputs[i].dtype] for i in self.differentiated)
        labels = [str(i) for i in self.differentiated] + [f"dy{k}" for k in range(9)]
        for label, w, g in zip(labels, want, got):
            if g is None:
                if self.record["differentiable"] and _largest(w) > 1e-12:
                    faults.append(f"{what}{label}: none, PyTorch has one")
                continue
            if not self.record["differentiable"]:
                faults.append(f"{what}{label} of an op that has none")
                continue
            w = torch.zeros(g.shape, dtype=torch.float64) if w is None else w
            size = max(_largest(w), LEAST[g.dtype])
            fault = difference(w.detach().numpy(), g, g.dtype, size, least)
            if fault:
                faults.append(f"{what}{label} {fault}")
        return faults


def _largest(w):
    return 0 if w is None or not w.numel() else w.abs().max().item()


def reproduction(report):
    text, feeds, variables, requests, options = report
    lines = ["graph:", *("    " + line[:300] for line in text.splitlines())]
    lines += [f"variable {n}: {summary(v)}" for n, v in variables.items()]
    lines += [f"feed {n}: {summary(v)}" for n, v in feeds.items()]
    lines += [f"gradients: {r}" for r in requests] + [f"options: {options}"]
    return lines


def cases(ops, seed, long):
    """Names of cases and what makes them."""
    for name in names(ops):
        for index in range(300 if long else 40):
            yield f"{name}/{index}", lambda n=name, i=index: OpCase(ops, n, seed, i)


def notes():
    return ""
