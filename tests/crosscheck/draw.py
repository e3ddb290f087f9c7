"""Random shapes, dtypes and values, reproducible from a seed."""
import zlib

import numpy as np

from driver import FLOATS, HALVES, Value

SIZES = [1, 1, 2, 2, 3, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 64]
SPECIAL = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e30, -1e30, 1e-30,
           0.5, -0.5, 6.0, 88.0, -88.0, 104.0, -104.0, 709.0, 2.5, 3.5, -2.5]
INDICES = ("int32", "int64")


class Draw:
    """`plain`, `ties` (few values, many equal) or `special` (infinities, NaN,
    ends of the range) is the style of a whole case."""

    def __init__(self, name, seed, index):
        self.rng = np.random.default_rng([seed, index, zlib.crc32(name.encode())])
        self.style = self.pick(["plain", "plain", "ties", "special"])
        self.most = 4000  # elements

    def pick(self, items):
        return items[int(self.rng.integers(len(items)))]

    def chance(self, p):
        return self.rng.random() < p

    def integer(self, lo, hi):
        """Both ends included."""
        return int(self.rng.integers(lo, hi + 1))

    def size(self, empty=True):
        return 0 if empty and self.chance(0.03) else self.pick(SIZES)

    def shape(self, lo=0, hi=4, empty=True):
        while True:
            shape = [self.size(empty) for _ in range(self.integer(lo, hi))]
            if self.chance(0.05) and shape:
                shape[-1] = self.integer(65, 3000)
            if np.prod(shape, dtype=np.int64) <= self.most:
                return shape

    def subset(self, items, least=0):
        count = self.integer(least, len(items)) if len(items) >= least else 0
        return [items[i] for i in self.rng.permutation(len(items))[:count]]

    def broadcasting(self, shape):
        """A shape that broadcasts to `shape`."""
        part = shape[self.integer(0, len(shape)):] if self.chance(0.4) else list(shape)
        return [1 if self.chance(0.25) else s for s in part]

    def dtype(self, allowed):
        """float32 and float64 more often than others."""
        usual = [d for d in ("float32", "float64") if d in allowed]
        return self.pick(usual if usual and self.chance(0.6) else list(allowed))

    def values(self, dtype, shape, lo=-2.0, hi=2.0, style=None):
        style = style or self.style
        if dtype == "bool":
            return Value("bool", self.rng.random(shape) < 0.5)
        if dtype not in FLOATS:
            return self._integers(dtype, shape, lo, hi, style)
        array = np.asarray(self.rng.uniform(lo, hi, shape))
        if style == "ties":
            array = np.clip(np.round(array * 2) / 2, np.ceil(lo * 2) / 2, hi)
        if style == "special":
            some = self.rng.random(shape) < 0.3
            array = np.where(some, self.rng.choice(SPECIAL, shape), array)
        return Value.of(dtype, array)

    def _integers(self, dtype, shape, lo, hi, style):
        info = np.iinfo(dtype)
        lo, hi = int(np.ceil(lo)), max(int(np.ceil(lo)), int(np.floor(hi)))
        if style == "plain":
            lo, hi = min(lo, -100), max(hi, 100)
        array = self.rng.integers(max(lo, info.min), min(hi, info.max), shape,
                                  dtype=np.int64, endpoint=True)
        if style == "special":
            ends = [info.min, info.max, info.min + 1, 0, 1, max(-1, info.min), 2]
            some = self.rng.random(shape) < 0.4
            array = np.where(some, self.rng.choice(ends, shape), array)
        return Value(dtype, np.asarray(array).astype(dtype))

    def indices(self, limit, shape):
        dtype = self.pick(INDICES)
        return Value(dtype, np.asarray(self.rng.integers(0, max(limit, 1), shape)).astype(dtype))


def dims(values):
    return Value("int64", np.array(values, dtype=np.int64))


def compute_type(dtype):
    return "float32" if dtype in HALVES else dtype
