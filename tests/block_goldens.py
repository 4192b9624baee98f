#!/usr/bin/env python3
"""Prints the lines of `goldens` in dequantise_test.cc that llama.cpp's own decoders give.

Needs its Python package (`pip install gguf`), which has every block format in numpy. A line is the
hash of all values of 64 blocks of a stream of bytes, in which no scale is infinite.
"""

import gguf
import numpy

BLOCKS = 64
# Where the upper bytes of the scales of a block are: bit 6 of them, of the exponent, becomes 0.
TOPS_OF_SCALES = {
    "IQ2_XXS": [1], "IQ2_XS": [1], "IQ3_XXS": [1], "IQ1_S": [1], "IQ3_S": [1], "IQ2_S": [1],
    "IQ1_M": [55], "TQ1_0": [53], "TQ2_0": [65], "Q4_0": [1], "Q4_1": [1, 3], "Q5_0": [1],
    "Q5_1": [1, 3], "Q8_0": [1], "Q2_K": [81, 83], "Q3_K": [109], "Q4_K": [1, 3], "Q5_K": [1, 3],
    "Q6_K": [209], "IQ4_NL": [1], "IQ4_XS": [1], "MXFP4": [0],
}


def stream_of_bytes(size, seed):
    """The upper bytes of xorshift64*."""
    for _ in range(size):
        seed ^= seed >> 12
        seed = (seed ^ seed << 25) & 0xFFFFFFFFFFFFFFFF
        seed ^= seed >> 27
        yield seed * 0x2545F4914F6CDD1D >> 56 & 255


def fnv_1a(data):
    hashed = 0xCBF29CE484222325
    for byte in data:
        hashed = (hashed ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return hashed


for name, tops in TOPS_OF_SCALES.items():
    kind = gguf.GGMLQuantizationType[name]
    bytes_per_block = gguf.GGML_QUANT_SIZES[kind][1]
    stream = numpy.array([*stream_of_bytes(BLOCKS * bytes_per_block, kind.value)], numpy.uint8)
    blocks = stream.reshape(BLOCKS, bytes_per_block)
    blocks[:, tops] &= 0xBF
    values = gguf.quants.dequantize(blocks, kind).astype("<f4")
    tops_text = ", ".join(map(str, tops))
    print(f"{{BlockType::{name.lower()}, {{{tops_text}}}, {fnv_1a(values.tobytes()):#018x}}},")
