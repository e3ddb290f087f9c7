#!/usr/bin/env python3
"""Parses tf.Examples in tf.data on one thread: the peer of bench/input_bench's
parse, scalars, pictures and picture.

    input_bench --which parse scalars pictures picture
    example_parse.py

The serialised examples are a tensor that is repeated without being copied; what
is parsed is dropped. Rates are by processor time, all threads together: tf.data
hands elements from one thread to another, which other work on the cores would
make to seem slow.
"""

import argparse
import os
import statistics
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--rounds", type=int, default=11)
parser.add_argument(
    "which", nargs="*", default=["parse", "scalars", "pictures", "picture"]
)
flags = parser.parse_args()

tf.config.threading.set_intra_op_parallelism_threads(1)
tf.config.threading.set_inter_op_parallelism_threads(1)
RANDOM = np.random.default_rng(1)


def feature(value):
    if isinstance(value, bytes):
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))
    if isinstance(value, int):
        return tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))
    return tf.train.Feature(float_list=tf.train.FloatList(value=[value]))


def serialise(features):
    features = {name: feature(value) for name, value in features.items()}
    return tf.train.Example(
        features=tf.train.Features(feature=features)
    ).SerializeToString()


def scalars():
    values = [int(value) for value in RANDOM.integers(0, 100_000, 40)]
    return {
        **{f"integer_{i:02}": values[i] for i in range(20)},
        **{f"float_{i:02}": values[20 + i] / 8 for i in range(20)},
    }


def picture():
    return {"image/encoded": RANDOM.bytes(100_000), "image/class/label": 7}


def dtype(value):
    kinds = {bytes: tf.string, int: tf.int64, float: tf.float32}
    return kinds[type(value)]


def dataset(what):
    """The elements of a round, and how many examples they are."""
    large = what.startswith("picture")
    make = picture if large else scalars
    spec = {
        name: tf.io.FixedLenFeature([], dtype(value))
        for name, value in make().items()
    }
    batch, batches = (32, 20) if large else (128, 200)
    examples = [serialise(make()) for _ in range(batch)]
    if what in ("parse", "pictures"):
        one = tf.data.Dataset.from_tensors(examples).repeat(batches)
        parsed = one.map(lambda rows: tf.io.parse_example(rows, spec))
    else:
        one = tf.data.Dataset.from_tensors(examples[0]).repeat(batches * batch)
        parsed = one.map(lambda row: tf.io.parse_single_example(row, spec))
    options = tf.data.Options()
    options.threading.private_threadpool_size = 1
    return parsed.with_options(options), batches * batch


for what in flags.which:
    elements, count = dataset(what)

    @tf.function
    def read():
        return elements.reduce(tf.constant(0, tf.int64), lambda n, _: n + 1)

    read()
    rates = []
    for _ in range(flags.rounds):
        begin = time.process_time()
        read()
        rates.append(count / (time.process_time() - begin))
    print(
        f"{what:9}{statistics.median(rates):9.1f} examples/s"
        f" ({min(rates):.1f} to {max(rates):.1f})",
        flush=True,
    )
