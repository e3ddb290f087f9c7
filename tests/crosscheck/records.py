"""TFRecord files of random tf.Examples: written by TensorFlow, plain and
compressed, and read here, and the other way round. Without TensorFlow nothing is
compared, and that is said."""
import os
import struct
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
try:
    import tensorflow as tf
except ImportError:
    tf = None

from draw import Draw

NAMES = ["image/encoded", "label", "a", "b/c", "é", "日本", ""]
COMPRESSIONS = ["", "GZIP", "ZLIB"]


def float32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def random_feature(d):
    kind = d.pick(["bytes", "floats", "ints"])
    count = d.pick([0, 1, 1, 2, 5, 300])
    if kind == "ints":
        return {kind: [d.pick([0, 1, -1, 7, 2**31, 2**63 - 1, -2**63]) for _ in range(count)]}
    if kind == "floats":
        return {kind: [float32(d.integer(-1000, 1000) / 3) for _ in range(count)]}
    return {kind: [d.rng.bytes(d.pick([0, 1, 20, 70_000 // count])).hex() for _ in range(count)]}


def to_tensorflow(example):
    features = {}
    for name, feature in example.items():
        (kind, values), = feature.items()
        features[name] = {
            "bytes": lambda: tf.train.Feature(bytes_list=tf.train.BytesList(
                value=[bytes.fromhex(value) for value in values])),
            "floats": lambda: tf.train.Feature(float_list=tf.train.FloatList(value=values)),
            "ints": lambda: tf.train.Feature(int64_list=tf.train.Int64List(value=values)),
        }[kind]()
    return tf.train.Example(features=tf.train.Features(feature=features))


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
            {name: random_feature(d) for name in d.subset(NAMES)}
            for _ in range(d.pick([0, 1, 3, 40]))]

    def reproduction(self):
        return [f"{self.compression or 'plain'}: {str(self.examples)[:1000]}"]

    def check(self, driver):
        with tempfile.TemporaryDirectory() as folder:
            theirs, ours = os.path.join(folder, "theirs"), os.path.join(folder, "ours")
            with tf.io.TFRecordWriter(theirs, self.compression) as writer:
                for example in self.examples:
                    writer.write(to_tensorflow(example).SerializeToString())
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


def missing(ops):
    return []


def notes():
    return f"(TensorFlow {tf.__version__})" if tf else "(skipped: there is no TensorFlow)"
