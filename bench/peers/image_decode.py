#!/usr/bin/env python3
"""Decodes random parts of photographs, resized and flipped, in Pillow and
TensorFlow, on one thread: the peers of bench/input_bench.

    input_bench FOLDER --rectangles > rectangles
    image_decode.py FOLDER rectangles

pillow does what torchvision's RandomResizedCrop and RandomHorizontalFlip do;
tensorflow, what its ImageNet examples do: decode_and_crop_jpeg, resize (with no
antialiasing, into float32) and flip. The files lie in memory. With --serve
"NAME ROUND" on stdin is answered with that round's images per second, so that
sides can take turns.
"""

import argparse
import collections
import io
import json
import os
import statistics
import sys
import time

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("folder")
parser.add_argument("rectangles", help="what input_bench --rectangles printed")
parser.add_argument("--side", type=int, default=224)
parser.add_argument("--json", action="store_true")
parser.add_argument("--serve", action="store_true")
flags = parser.parse_args()


def pillow():
    from PIL import Image

    def run(data, top, left, height, width, flip):
        image = Image.open(io.BytesIO(data)).convert("RGB")
        image = image.crop((left, top, left + width, top + height))
        image = image.resize((flags.side, flags.side), Image.BILINEAR)
        return image.transpose(Image.FLIP_LEFT_RIGHT) if flip else image

    return run


def tensorflow():
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)

    @tf.function(
        input_signature=[
            tf.TensorSpec([], tf.string),
            tf.TensorSpec([4], tf.int32),
            tf.TensorSpec([], tf.bool),
        ]
    )
    def graph(data, window, flip):
        image = tf.image.decode_and_crop_jpeg(
            data, window, channels=3, dct_method="INTEGER_ACCURATE"
        )
        image = tf.image.resize(image, (flags.side, flags.side))
        return tf.cond(flip, lambda: tf.image.flip_left_right(image), lambda: image)

    def run(data, top, left, height, width, flip):
        window = tf.constant([top, left, height, width], tf.int32)
        return graph(tf.constant(data), window, tf.constant(flip))

    return run


def read_rounds():
    rounds = collections.defaultdict(list)
    files = {}
    with open(flags.rectangles) as lines:
        for line in lines:
            one = json.loads(line)
            name = one.pop("file")
            if name not in files:
                with open(os.path.join(flags.folder, name), "rb") as file:
                    files[name] = file.read()
            rounds[one.pop("round")].append((files[name], one))
    return rounds


def rate(run, items):
    begin = time.perf_counter()
    for data, part in items:
        run(data, **part)
    return len(items) / (time.perf_counter() - begin)


def main():
    rounds = read_rounds()
    peers = {}
    for peer in (pillow, tensorflow):
        try:
            peers[peer.__name__] = peer()
        except ImportError as error:
            print(f"{peer.__name__} is left out: {error}", file=sys.stderr)
    for run in peers.values():
        rate(run, rounds[0])  # warms up
    if flags.serve:
        print("ready", flush=True)
        for line in sys.stdin:
            name, number = line.split()
            print(rate(peers[name], rounds[int(number)]), flush=True)
        return
    for name, run in peers.items():
        rates = [rate(run, items) for items in rounds.values()]
        result = {
            "peer": name,
            "rounds": len(rates),
            "images_per_second": statistics.median(rates),
            "least": min(rates),
            "most": max(rates),
        }
        if flags.json:
            print(json.dumps(result))
        else:
            print(
                f"{name:12}{result['images_per_second']:9.1f} images/s"
                f" ({result['least']:.1f} to {result['most']:.1f})"
            )


main()
