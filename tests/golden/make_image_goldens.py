#!/usr/bin/env python3
"""Writes images.safetensors: small JPEG and PNG files and what Pillow and
torchvision make of them.

Needs pillow, torch, torchvision, numpy and safetensors (bench/requirements.txt).
"""

import io

import numpy
from PIL import Image
from torchvision import transforms

from make_goldens import Family


def picture(height, width):
    """Smooth colours with an edge and a fine pattern in them."""
    y, x = numpy.mgrid[0:height, 0:width]
    red = 255 * x / width
    green = 127 + 100 * numpy.sin(y / 5.0) * numpy.cos(x / 7.0)
    blue = numpy.where(x > y, 200, 40) + 10 * ((x + y) % 3)
    stack = numpy.stack([red, green, blue], axis=2)
    return Image.fromarray(stack.clip(0, 255).astype(numpy.uint8))


def encoded(image, **options):
    buffer = io.BytesIO()
    image.save(buffer, **options)
    return buffer.getvalue()


def main():
    family = Family()
    rgb = picture(37, 52)
    rgba = rgb.copy()
    rgba.putalpha(Image.linear_gradient("L").resize(rgb.size))
    files = {
        "jpeg": encoded(rgb, format="JPEG", quality=90, subsampling=2),
        "jpeg_progressive": encoded(rgb, format="JPEG", progressive=True),
        "jpeg_grey": encoded(rgb.convert("L"), format="JPEG"),
        "jpeg_cmyk": encoded(rgb.convert("CMYK"), format="JPEG"),
        "png": encoded(rgb, format="PNG"),
        "png_grey": encoded(rgb.convert("L"), format="PNG"),
        "png_palette": encoded(rgb.quantize(16), format="PNG"),
        "png_alpha": encoded(rgba, format="PNG"),
    }
    for name, data in files.items():
        decoded = Image.open(io.BytesIO(data)).convert("RGB")
        family.add_tensor(
            f"{name}/file", numpy.frombuffer(data, dtype=numpy.uint8)
        )
        family.add_tensor(f"{name}/pixels", numpy.asarray(decoded))
    for height, width in ((37, 52), (19, 23), (64, 40), (100, 130), (37, 20)):
        resized = transforms.Resize((height, width))(rgb)
        family.add_tensor(
            f"resized/{height}x{width}", numpy.asarray(resized)
        )
    for name, (height, width) in {"wide": (37, 52), "tall": (61, 40)}.items():
        fit = transforms.Compose(
            [transforms.Resize(32), transforms.CenterCrop(28)]
        )
        family.add_tensor(
            f"fitted/{name}", numpy.asarray(fit(picture(height, width)))
        )
        family.add_tensor(
            f"fitted/{name}/from", numpy.asarray(picture(height, width))
        )
    family.metadata["about"] = "images"
    family.write("images")


if __name__ == "__main__":
    main()
