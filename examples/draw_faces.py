#!/usr/bin/env python3
"""Draws boxes round the faces of a photo, found by UltraFace RFB-320 in `bolide run`.

usage: draw_faces.py MODEL.onnx PHOTO [OUT.png] [--bolide PROGRAM] [--least SCORE]
       draw_faces.py MODEL.onnx --astronaut      scikit-image's photo of Eileen Collins (NASA, public domain)
Needs numpy and Pillow; --astronaut needs scikit-image.
"""
import argparse
import pathlib
import subprocess
import tempfile

import numpy as np
from PIL import Image, ImageDraw

OVERLAP_MAX = 0.3  # boxes that share more of their union with a better one are the same face


def area(boxes):
    return np.prod(np.maximum(boxes[..., 2:] - boxes[..., :2], 0), axis=-1)


def best_boxes(boxes, scores, least):
    """Greedy non-maximum suppression: boxes [n, 4] as left, top, right, bottom."""
    order = [i for i in np.argsort(-scores) if scores[i] >= least]
    kept = []
    while order:
        best, rest = order[0], np.array(order[1:], dtype=int)
        kept.append(best)
        shared = area(np.concatenate([np.maximum(boxes[rest, :2], boxes[best, :2]),
                                      np.minimum(boxes[rest, 2:], boxes[best, 2:])], axis=-1))
        union = area(boxes[rest]) + area(boxes[best]) - shared
        order = list(rest[shared <= OVERLAP_MAX * union])
    return kept


def find_faces(bolide, model, photo, least):
    """[(left, top, right, bottom) in 0 to 1, score]"""
    with tempfile.TemporaryDirectory() as folder:
        output = pathlib.Path(folder) / "faces.npz"
        # The network was trained on RGB of 320x240, (pixel - 127) / 128; layout and size are what its input declares.
        subprocess.run([bolide, "run", model, "--input", f"input={photo}:mean=127,scale=0.0078125", "--output", output],
                       check=True, stdout=subprocess.DEVNULL)
        with np.load(output) as arrays:
            scores, boxes = arrays["scores"][0, :, 1], arrays["boxes"][0]
    return [(boxes[i], float(scores[i])) for i in best_boxes(boxes, scores, least)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("photo", nargs="?")
    parser.add_argument("out", nargs="?", default="faces.png")
    parser.add_argument("--astronaut", action="store_true")
    parser.add_argument("--bolide", default="bolide")
    parser.add_argument("--least", type=float, default=0.7)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        photo = arguments.photo
        if arguments.astronaut:
            from skimage import data
            photo = str(pathlib.Path(folder) / "astronaut.png")
            Image.fromarray(data.astronaut()).save(photo)
        elif photo is None:
            parser.error("give a PHOTO, or --astronaut")
        faces = find_faces(arguments.bolide, arguments.model, photo, arguments.least)
        image = Image.open(photo).convert("RGB")
    draw = ImageDraw.Draw(image)
    for box, score in faces:
        corners = [float(v) * side for v, side in zip(box, image.size * 2)]
        draw.rectangle(corners, outline=(255, 64, 0), width=max(2, image.width // 200))
        draw.text((corners[0] + 4, corners[1] + 4), f"{score:.2f}", fill=(255, 64, 0))
        print(f"{score:.3f}  {', '.join(f'{v:.0f}' for v in corners)}")
    image.save(arguments.out)
    print(f"{len(faces)} faces; {arguments.out}")


if __name__ == "__main__":
    main()
