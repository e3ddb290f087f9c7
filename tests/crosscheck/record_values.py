"""Random features of tf.Examples, and what TensorFlow has for them. A feature is
{kind: [value]}, bytes in hexadecimal digits."""
import os
import struct

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
try:
    import tensorflow as tf
except ImportError:
    tf = None

UNICODE = ["image/encoded", "label", "a", "b/c", "é", "日本", ""]
COMPRESSIONS = ["", "GZIP", "ZLIB"]


def float32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def random_values(d, kind, count):
    if kind == "ints":
        return {kind: [d.pick([0, 1, -1, 7, 2**31, 2**63 - 1, -2**63]) for _ in range(count)]}
    if kind == "floats":
        return {kind: [float32(d.integer(-1000, 1000) / 3) for _ in range(count)]}
    return {kind: [d.rng.bytes(d.pick([0, 1, 20, 70_000 // count])).hex() for _ in range(count)]}


def to_feature(feature):
    (kind, values), = feature.items()
    if kind == "bytes":
        return tf.train.Feature(bytes_list=tf.train.BytesList(
            value=[bytes.fromhex(value) for value in values]))
    if kind == "floats":
        return tf.train.Feature(float_list=tf.train.FloatList(value=values))
    return tf.train.Feature(int64_list=tf.train.Int64List(value=values))


def to_features(example):
    return tf.train.Features(feature={name: to_feature(f) for name, f in example.items()})
