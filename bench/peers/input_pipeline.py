#!/usr/bin/env python3
"""Times an input pipeline over a folder of records in tf.data, or over a folder
of photographs in PyTorch's DataLoader: the peers of bench/pipeline_bench.

    input_pipeline.py RECORDS --threads 2
    input_pipeline.py --torch PHOTOGRAPHS --threads 2

Each reads, decodes, takes a random part resized to 224 x 224 and flipped half
of the time, standardises and batches; nobody uses the batches. In tf.data with
decode_and_crop_jpeg, in PyTorch with Pillow as torchvision's transforms do.
"""

import argparse
import glob
import math
import os
import random
import statistics
import time

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("folder")
parser.add_argument("--torch", action="store_true")
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--batch-size", type=int, default=32)
parser.add_argument("--rounds", type=int, default=9)
flags = parser.parse_args()
SIDE = 224
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def tensorflow_batches():
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(flags.threads)
    tf.config.threading.set_inter_op_parallelism_threads(flags.threads)
    spec = {
        "image/encoded": tf.io.FixedLenFeature([], tf.string),
        "image/class/label": tf.io.FixedLenFeature([], tf.int64),
    }
    whole = tf.constant([0.0, 0.0, 1.0, 1.0], shape=[1, 1, 4])
    mean, deviation = tf.constant(MEAN) * 255, tf.constant(DEVIATION) * 255

    def picture(record):
        features = tf.io.parse_single_example(record, spec)
        data = features["image/encoded"]
        begin, size, _ = tf.image.sample_distorted_bounding_box(
            tf.image.extract_jpeg_shape(data),
            whole,
            aspect_ratio_range=(3 / 4, 4 / 3),
            area_range=(0.08, 1.0),
            max_attempts=10,
            use_image_if_no_bounding_boxes=True,
        )
        window = tf.stack([begin[0], begin[1], size[0], size[1]])
        image = tf.image.decode_and_crop_jpeg(
            data, window, channels=3, dct_method="INTEGER_ACCURATE"
        )
        image = tf.image.resize(image, [SIDE, SIDE])
        image = tf.image.random_flip_left_right(image)
        return (image - mean) / deviation, features["image/class/label"]

    files = sorted(glob.glob(os.path.join(flags.folder, "train-*-of-*[0-9]")))
    data = tf.data.TFRecordDataset(files)
    count = sum(1 for _ in data)
    options = tf.data.Options()
    options.threading.private_threadpool_size = flags.threads
    data = data.shuffle(count).repeat()
    data = data.map(picture, num_parallel_calls=flags.threads)
    data = data.batch(flags.batch_size).prefetch(2).with_options(options)
    return iter(data), count


def torch_batches():
    import numpy
    import torch
    from PIL import Image

    class Photographs(torch.utils.data.Dataset):
        def __init__(self):
            self.paths = sorted(glob.glob(os.path.join(flags.folder, "*.JPEG")))

        def __len__(self):
            return len(self.paths)

        def __getitem__(self, i):
            with open(self.paths[i], "rb") as file:
                image = Image.open(file).convert("RGB")
            columns, rows = image.size
            for _ in range(10):
                area = columns * rows * random.uniform(0.08, 1)
                ratio = math.exp(random.uniform(-1, 1) * math.log(4 / 3))
                width = round(math.sqrt(area * ratio))
                height = round(math.sqrt(area / ratio))
                if 0 < width <= columns and 0 < height <= rows:
                    break
            else:
                width, height = columns, rows
            left = random.randint(0, columns - width)
            top = random.randint(0, rows - height)
            image = image.crop((left, top, left + width, top + height))
            image = image.resize((SIDE, SIDE), Image.BILINEAR)
            if random.random() < 0.5:
                image = image.transpose(Image.FLIP_LEFT_RIGHT)
            pixels = torch.from_numpy(numpy.array(image)).permute(2, 0, 1)
            pixels = pixels.contiguous().float().div_(255)
            mean = torch.tensor(MEAN).view(3, 1, 1)
            deviation = torch.tensor(DEVIATION).view(3, 1, 1)
            return pixels.sub_(mean).div_(deviation), 0

    torch.set_num_threads(1)
    photographs = Photographs()

    def forever():
        loader = torch.utils.data.DataLoader(
            photographs,
            batch_size=flags.batch_size,
            shuffle=True,
            num_workers=flags.threads,
            persistent_workers=True,
        )
        while True:
            yield from loader

    return forever(), len(photographs)


name = "DataLoader" if flags.torch else "tf.data"
batches, count = torch_batches() if flags.torch else tensorflow_batches()
rates = []
for turn in range(flags.rounds + 1):
    begin, images = time.perf_counter(), 0
    while images < count:
        images += len(next(batches)[1])
    if turn > 0:
        rates.append(images / (time.perf_counter() - begin))
print(
    f"{name:10}  {statistics.median(rates):9.1f} images/s "
    f"({min(rates):.1f} to {max(rates):.1f})"
)
