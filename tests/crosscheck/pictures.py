"""Random parts of pictures, resized, padded and flipped, against torchvision's
transforms, which are handed what we draw. Without torchvision nothing is compared,
and that is said."""
from unittest import mock

import numpy as np
import torch

from draw import Draw

try:
    from PIL import Image
    from torchvision import transforms
    from torchvision.transforms import functional
except ImportError:
    transforms = None


class Draws:
    """Stands for torch.empty(1).uniform_ and torch.randint."""

    def __init__(self, numbers):
        self.numbers = iter(numbers)

    def uniform_(self, low, high):
        share = next(self.numbers) / 2**32
        return torch.tensor([float(low) + (float(high) - float(low)) * share], dtype=torch.float64)

    def randint(self, low, high, size):
        return torch.tensor([low + (next(self.numbers) * (high - low) >> 32)])

    def flips(self, probability):
        return next(self.numbers) / 2**32 >= 1 - probability

    def handed_out(self):
        return mock.patch.multiple(torch, empty=lambda _: self, randint=self.randint)


class Case:
    def __init__(self, d, **request):
        rows, columns = (d.integer(1, d.pick([4, 40, 90])) for _ in range(2))
        self.array = np.frombuffer(d.rng.bytes(rows * columns * 3), np.uint8).reshape(
            rows, columns, 3)
        self.request = {"rows": rows, "columns": columns, "key": d.integer(0, 2**62),
                        "flip": d.pick([0, 0.5, 0.3, 1]), **request}

    def reproduction(self):
        return [repr(self.request)]

    def answer(self, driver):
        return driver.remote({**self.request, "pixels": self.array.tobytes().hex()})

    def compare(self, image, answer):
        got = np.frombuffer(bytes.fromhex(answer["pixels"]), np.uint8)
        wanted = np.asarray(image)
        if got.size != wanted.size:
            return [f"wanted {wanted.size} bytes, got {got.size}"]
        wrong = np.flatnonzero(got != wanted.ravel())
        return [f"{wrong.size} of {got.size} bytes differ, the first at {wrong[0]}: wanted "
                f"{wanted.ravel()[wrong[0]]}, got {got[wrong[0]]}"] if wrong.size else []


class CropCase(Case):
    def __init__(self, seed, index):
        d = Draw("pictures/crop", seed, index)
        low, narrow = d.integer(1, 100) / 100, d.pick([3 / 4, 1, 0.2, 2, 0.01])
        super().__init__(d, do="random_crop", side=d.integer(1, 40),
                         scale=[low, d.pick([low, 1, (low + 1) / 2])],
                         ratio=[narrow, narrow * d.pick([1, 16 / 9, 5])])

    def check(self, driver):
        answer = self.answer(driver)
        image, draws = Image.fromarray(self.array), Draws(answer["draws"])
        with draws.handed_out():
            wanted = transforms.RandomResizedCrop.get_params(
                image, self.request["scale"], self.request["ratio"])
        got = answer["part"]
        # torchvision's logarithms of ratios are float32: a side may be one pixel longer.
        if max(abs(w - g) for w, g in zip(wanted[2:], got[2:])) > 1:
            return [f"wanted the part {wanted}, got {got}"]
        if wanted[2:] == tuple(got[2:]):
            if wanted != tuple(got):
                return [f"wanted the part {wanted}, got {got}"]
            if draws.flips(self.request["flip"]) != answer["flipped"]:
                return [f"flipped: {answer['flipped']}"]
        side = self.request["side"]
        image = functional.resized_crop(image, *got, [side, side])
        return self.compare(functional.hflip(image) if answer["flipped"] else image, answer)


class PadCase(Case):
    def __init__(self, seed, index):
        d = Draw("pictures/pad", seed, index)
        super().__init__(d, do="pad_crop", pad=d.pick([0, 1, 4, 31]))

    def check(self, driver):
        answer = self.answer(driver)
        draws = Draws(answer["draws"])
        image = functional.pad(Image.fromarray(self.array), self.request["pad"])
        size = self.request["rows"], self.request["columns"]
        if self.request["pad"] > 0:
            with draws.handed_out():
                place = transforms.RandomCrop.get_params(image, size)
        else:  # then torchvision draws nothing
            place = 0, 0, *size
            draws.randint(0, 1, 1), draws.randint(0, 1, 1)
        image = functional.crop(image, *place)
        return self.compare(functional.hflip(image) if draws.flips(self.request["flip"])
                            else image, answer)


def cases(ops, seed, long):
    if transforms is None:
        return
    for index in range(4000 if long else 250):
        yield f"crop/{index}", lambda index=index: CropCase(seed, index)
        yield f"pad/{index}", lambda index=index: PadCase(seed, index)


def missing(ops):
    return []


def notes():
    return "(torchvision is not installed: skipped)" if transforms is None else ""
