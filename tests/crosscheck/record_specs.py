"""TFRecord files of tf.Examples and tf.SequenceExamples, written by TensorFlow
or by us, and parsed by both into tensors: of fixed sizes, and ragged ones that
are padded, some with values for what is missing."""
import os
import tempfile

import numpy as np
from draw import Draw

from record_values import COMPRESSIONS, UNICODE, random_values, tf, to_feature, to_features

UNKNOWN = -1
FIXED = [[], [1], [3], [2, 2]]
RAGGED = [[UNKNOWN], [UNKNOWN], [UNKNOWN, 2]]


def product(shape):
    return int(np.prod([n for n in shape if n != UNKNOWN], dtype=np.int64))


class Spec:
    def __init__(self, d, name):
        self.name = name
        self.kind = d.pick(["ints", "floats", "bytes"])
        ragged = self.kind == "bytes" or d.chance(0.5)
        self.shape = [UNKNOWN] if self.kind == "bytes" else d.pick(RAGGED if ragged else FIXED)
        self.missing = d.pick([None, None, 0, 7])

    @property
    def ragged(self):
        return bool(self.shape) and self.shape[0] == UNKNOWN

    def json(self):
        return {"name": self.name, "kind": self.kind, "shape": self.shape,
                "missing": self.missing}

    def feature(self, d):
        """One that fits."""
        if self.kind == "bytes":
            return random_values(d, "bytes", 1)
        count = product(self.shape) * (d.pick([0, 1, 1, 2, 5, 60]) if self.ragged else 1)
        return random_values(d, self.kind, count)

    # What TensorFlow parses it by.

    @property
    def dtype(self):
        return {"ints": tf.int64, "floats": tf.float32, "bytes": tf.string}[self.kind]

    def default(self):
        if self.missing is None:
            return None
        return b"" if self.kind == "bytes" else self.missing

    def of_one(self):
        if self.kind == "bytes":
            return tf.io.FixedLenFeature([], tf.string, self.default())
        if self.ragged:
            return tf.io.VarLenFeature(self.dtype)
        default = None if self.missing is None else np.full(self.shape, self.missing)
        return tf.io.FixedLenFeature(self.shape, self.dtype, default)

    def of_batch(self):
        if self.kind == "bytes" or not self.ragged:
            return self.of_one()
        return tf.io.FixedLenSequenceFeature(self.shape[1:], self.dtype, allow_missing=True,
                                             default_value=self.missing)

    def of_steps(self):
        may_lack = self.missing is not None
        if self.ragged and self.kind != "bytes":
            return tf.io.VarLenFeature(self.dtype)
        shape = [] if self.kind == "bytes" else self.shape
        return tf.io.FixedLenSequenceFeature(shape, self.dtype, allow_missing=may_lack)

    def padding(self):
        return 0 if self.missing is None else self.missing

    def texts(self, strings):
        """[strings, longest], bytes."""
        longest = max((len(s) for s in strings), default=0)
        out = np.full([len(strings), longest], self.padding(), np.int64)
        for row, text in zip(out, strings):
            row[:len(text)] = np.frombuffer(text, np.uint8)
        return out

    def one(self, parsed):
        if self.kind == "bytes":
            return np.frombuffer(parsed.numpy(), np.uint8)
        if self.ragged:
            return tf.sparse.to_dense(parsed).numpy().reshape([-1, *self.shape[1:]])
        return parsed.numpy()

    def rows(self, parsed):
        """Of a batch, or of steps."""
        if self.kind == "bytes":
            return self.texts([s for s in parsed.numpy()])
        if isinstance(parsed, tf.sparse.SparseTensor):
            dense = tf.sparse.to_dense(parsed, self.padding()).numpy()
            each = product(self.shape)
            return dense.reshape([len(dense), dense.shape[1] // each, *self.shape[1:]])
        return parsed.numpy()


def draw_specs(d, names):
    return [Spec(d, name) for name in names]


def filled(d, specs, make):
    """Of each what make(spec) gives, or where it may be missing nothing."""
    return {s.name: make(s) for s in specs if s.missing is None or not d.chance(0.3)}


def differences(i, specs, wanted, got):
    faults = []
    for spec in specs:
        value, tensor = wanted[spec.name], got[spec.name]
        ours = np.array(tensor["values"], np.float64 if spec.kind == "floats" else np.int64)
        if list(value.shape) != tensor["shape"]:
            faults.append(f"{i} {spec.json()}: wanted {list(value.shape)}, got {tensor['shape']}")
        elif not np.array_equal(ours.reshape(value.shape), value):
            faults.append(f"{i} {spec.json()}: wanted {value.tolist()}, got {tensor['values']}")
    return [fault[:500] for fault in faults]


class ParseCase:
    def __init__(self, seed, index, sequences):
        d = Draw("sequences" if sequences else "parse", seed, index)
        self.sequences = sequences
        self.compression = d.pick(COMPRESSIONS)
        names = d.subset(UNICODE, least=1)
        cut = d.integer(0, len(names)) if sequences else len(names)
        self.context, self.lists = draw_specs(d, names[:cut]), draw_specs(d, names[cut:])
        self.examples = [self.example(d) for _ in range(d.pick([0, 1, 3, 20]))]

    def example(self, d):
        context = filled(d, self.context, lambda s: s.feature(d))
        if not self.sequences:
            return context
        steps = d.pick([0, 1, 2, 9])
        return {"context": context,
                "lists": filled(d, self.lists, lambda s: [s.feature(d) for _ in range(steps)])}

    def reproduction(self):
        return [f"{self.compression or 'plain'}: {str(self.examples)[:1000]}"]

    def message(self, example):
        if not self.sequences:
            return tf.train.Example(features=to_features(example))
        lists = {name: tf.train.FeatureList(feature=map(to_feature, steps))
                 for name, steps in example["lists"].items()}
        return tf.train.SequenceExample(context=to_features(example["context"]),
                                        feature_lists=tf.train.FeatureLists(feature_list=lists))

    def parsed_by_tensorflow(self, payloads):
        if not self.sequences:
            parsed = tf.io.parse_example(tf.constant(payloads, tf.string),
                                         {s.name: s.of_batch() for s in self.context})
            return [{s.name: s.rows(parsed[s.name]) for s in self.context}]
        out = []
        for payload in payloads:
            context, lists = tf.io.parse_single_sequence_example(
                payload, {s.name: s.of_one() for s in self.context} or None,
                {s.name: s.of_steps() for s in self.lists} or None)
            out.append({**{s.name: s.one(context[s.name]) for s in self.context},
                        **{s.name: s.rows(lists[s.name]) for s in self.lists}})
        return out

    def check(self, driver):
        specs = self.context + self.lists
        ask = {"do": "parse_records", "sequences": self.sequences,
               "context": [s.json() for s in self.context],
               "lists": [s.json() for s in self.lists]}
        faults = []
        with tempfile.TemporaryDirectory() as folder:
            theirs, ours = os.path.join(folder, "theirs"), os.path.join(folder, "ours")
            with tf.io.TFRecordWriter(theirs, self.compression) as writer:
                for example in self.examples:
                    writer.write(self.message(example).SerializeToString())
            driver.remote({"do": "write_records", "path": ours, "examples": self.examples,
                           "compression": self.compression, "sequences": self.sequences})
            for path in (theirs, ours):
                payloads = [r.numpy() for r in tf.data.TFRecordDataset(path, self.compression)]
                wanted = self.parsed_by_tensorflow(payloads)
                got = driver.remote({**ask, "path": path})["examples"]
                if len(wanted) != len(got):
                    faults.append(f"wanted {len(wanted)} examples, got {len(got)}")
                for i, (w, g) in enumerate(zip(wanted, got)):
                    faults += differences(f"{os.path.basename(path)} {i}", specs, w, g)
        return faults
