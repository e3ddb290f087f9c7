"""Ops whose results are random: what must hold of any of them."""
import numpy as np

from cases import Case, makes
from draw import dims
from driver import FLOATS, Refused
from text import GraphText


@makes("RandomUniform", "RandomNormal", "TruncatedNormal")
def random_case(d, op):
    shape = [d.pick([1, 3, 50]), d.pick([1, 64, 333])]
    if op["name"] == "RandomUniform":
        attrs = {"dtype": d.pick([*FLOATS, "int32", "int64"]),
                 "lo": d.pick([0.0, -3.0]), "hi": d.pick([1.0, 100.0])}
    else:
        attrs = {"dtype": d.pick(FLOATS), "mean": d.pick([0.0, 2.0]),
                 "stddev": d.pick([1.0, 0.5])}
    return Case(op["name"], attrs, [dims(shape)], ["constant"])


@makes("Dropout")
def dropout_case(d, op):
    shape = [d.pick([1, 3, 50]), d.pick([1, 64, 333])]
    dtype = d.dtype(op["types"]["T"])
    return Case("Dropout", {"rate": d.pick([0.0, 0.2, 0.5, 0.9])},
                [d.values(dtype, shape, 0.5, 2, "plain")], ["feed"])


def _moments(y, mean, deviation):
    """Means of that many elements lie within 6 of their own deviations."""
    bound = 6 * deviation / np.sqrt(y.size) + 0.01 * (abs(mean) + deviation)
    if abs(y.mean() - mean) > bound:
        return [f"the mean is {y.mean()}, wanted {mean}"]
    if y.size > 5000 and deviation > 1e-3 and abs(y.std() / deviation - 1) > 0.1:
        return [f"the deviation is {y.std()}, wanted {deviation}"]
    return []


def _uniform(attrs, y):
    lo, hi = attrs["lo"], attrs["hi"]
    whole = attrs["dtype"] not in FLOATS
    if y.min() < lo or y.max() > hi or (y.max() == hi and attrs["dtype"] in
                                        ("float64", "int32", "int64")):
        return [f"{y.min()} to {y.max()}, wanted [{lo}, {hi})"]
    return _moments(y, (lo + hi - whole) / 2, np.sqrt(((hi - lo) ** 2 - whole) / 12) + 1e-9)


def _normal(attrs, y):
    return _moments(y, attrs["mean"], attrs["stddev"])


def _truncated(attrs, y):
    mean, deviation = attrs["mean"], attrs["stddev"]
    if np.abs(y - mean).max() > 2 * deviation * 1.01:
        return [f"{np.abs(y - mean).max()} from the mean, wanted {2 * deviation}"]
    return _moments(y, mean, 0.8796 * deviation)


CHECKS = {"RandomUniform": _uniform, "RandomNormal": _normal,
          "TruncatedNormal": _truncated, "Dropout": None}


def check(self, driver):
    text, feeds, variables = self.graph()
    self.report = (text.text(), feeds, variables, [], self.options)
    fetches = ["y", "y:1"] if feeds else ["y"]
    seeds = [self.d.integer(1, 99), 0]
    seeds[1] = seeds[0]
    answers = []
    try:
        for seed in seeds:
            runs, _ = driver.run(text.text(), [(feeds, fetches, [])], {}, [],
                                 {**self.options, "seed": seed})
            answers.append(runs[0])
    except Refused as error:
        return [f"refused: {error}"]
    same = all(a.bytes() == b.bytes() for a, b in zip(*answers))
    faults = [] if same else ["the same seed gives other numbers"]
    y = answers[0][0].array.astype(np.float64)
    name = self.record["name"]
    if name != "Dropout":
        return faults + CHECKS[name](self.attrs, y)
    mask, x = answers[0][1].array, self.case.inputs[0]
    kept = 1 - self.attrs["rate"]
    close = np.allclose(y, np.where(mask, x.wide() / kept, 0), rtol=1e-2)
    if not close:
        faults.append("y is not x / (1 - rate) where the mask is set")
    bound = 6 * np.sqrt(kept * (1 - kept) / mask.size)
    if abs(mask.mean() - kept) > bound:
        faults.append(f"{mask.mean()} kept, wanted {kept}")
    return faults
