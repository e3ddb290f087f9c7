"""TFRecord files of random tf.Examples: written by TensorFlow, plain and
compressed, and read here, and the other way round; and what both parse of them
(record_specs.py). Without TensorFlow nothing is compared, and that is said."""
import os
import tempfile

from draw import Draw
from record_specs import ParseCase
from record_values import COMPRESSIONS, UNICODE, random_values, tf, to_features


def from_tensorflow(payload):
    out = {}
    for name, feature in tf.train.Example.FromString(payload).features.feature.items():
        kind = feature.WhichOneof("kind")
        values = list(getattr(feature, kind).value)
        out[name] = {{"bytes_list": "bytes", "float_list": "floats", "int64_list": "ints"}[kind]:
                     [value.hex() for value in values] if kind == "bytes_list" else values}
    return out


def differences(wanted, got):
    if len(wanted) != len(got):
        return [f"wanted {len(wanted)} examples, got {len(got)}"]
    return [f"example {i}: wanted {str(w)[:300]}, got {str(g)[:300]}"
            for i, (w, g) in enumerate(zip(wanted, got)) if w != g]


class RecordCase:
    def __init__(self, seed, index):
        d = Draw("records", seed, index)
        self.compression = d.pick(COMPRESSIONS)
        self.examples = [
            {name: random_values(d, d.pick(["bytes", "floats", "ints"]),
                                 d.pick([0, 1, 1, 2, 5, 300]))
             for name in d.subset(UNICODE)}
            for _ in range(d.pick([0, 1, 3, 40]))]

    def reproduction(self):
        return [f"{self.compression or 'plain'}: {str(self.examples)[:1000]}"]

    def check(self, driver):
        with tempfile.TemporaryDirectory() as folder:
            theirs, ours = os.path.join(folder, "theirs"), os.path.join(folder, "ours")
            with tf.io.TFRecordWriter(theirs, self.compression) as writer:
                for example in self.examples:
                    writer.write(tf.train.Example(
                        features=to_features(example)).SerializeToString())
            read = driver.remote({"do": "read_records", "path": theirs})["examples"]
            driver.remote({"do": "write_records", "path": ours, "examples": self.examples,
                           "compression": self.compression})
            payloads = [record.numpy()
                        for record in tf.data.TFRecordDataset(ours, self.compression)]
            return (differences(self.examples, read) +
                    differences(self.examples, [from_tensorflow(p) for p in payloads]))


def cases(ops, seed, long):
    for index in range((1000 if long else 100) if tf else 0):
        yield f"{index}", lambda index=index: RecordCase(seed, index)
        yield f"parse/{index}", lambda index=index: ParseCase(seed, index, sequences=False)
        yield f"sequence/{index}", lambda index=index: ParseCase(seed, index, sequences=True)


def missing(ops):
    return []


def notes():
    return f"(TensorFlow {tf.__version__})" if tf else "(skipped: there is no TensorFlow)"
