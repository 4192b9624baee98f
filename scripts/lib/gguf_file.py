"""Reading a GGUF file: its metadata and its tensors, as they are stored."""

import functools
import math
import mmap
import struct

F32, F16, Q8_0, Q4_K = 0, 1, 8, 12
BLOCKS = {F32: (1, 4), F16: (1, 2), Q8_0: (32, 34), Q4_K: (256, 144)}  # weights and bytes
ALIGNMENT = 32
U8, I8, U16, I16, U32, I32, FLOAT, BOOL, STRING, ARRAY, U64, I64, DOUBLE = range(13)
SCALARS = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", FLOAT: "f", BOOL: "?",
           U64: "Q", I64: "q", DOUBLE: "d"}


class Reader:
    """The metadata and the tensors of a GGUF file that is known to be whole."""

    def __init__(self, path):
        with open(path, "rb") as file:
            self.bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.at = 0
        magic, version = self.take("4sI")
        if magic != b"GGUF" or version < 2:
            raise ValueError(f"{path}: no GGUF file of version 2 or 3")
        tensors, keys = self.take("QQ")
        self.keys = {}  # name: (type, value as bytes)
        for _ in range(keys):
            name = self.text()
            (kind,) = self.take("I")
            begin = self.at
            self.skip(kind)
            self.keys[name] = (kind, self.bytes[begin:self.at])
        self.infos = []
        for _ in range(tensors):
            name = self.text()
            (dimensions,) = self.take("I")
            shape = self.take("Q" * dimensions)
            self.infos.append((name, shape, *self.take("IQ")))

    @functools.cached_property
    def tensors(self):
        """{name: (shape, type, bytes)}."""
        data = -(-self.at // ALIGNMENT) * ALIGNMENT
        found = {}
        for name, shape, kind, offset in self.infos:
            size = size_of(shape, kind)
            found[name] = (shape, kind, self.bytes[data + offset:data + offset + size])
        return found

    def take(self, form):
        values = struct.unpack_from("<" + form, self.bytes, self.at)
        self.at += struct.calcsize("<" + form)
        return values

    def text(self):
        (size,) = self.take("Q")
        self.at += size
        return self.bytes[self.at - size:self.at].decode()

    def skip(self, kind):
        if kind == STRING:
            self.text()
        elif kind == ARRAY:
            inner, count = self.take("IQ")
            for _ in range(count):
                self.skip(inner)
        else:
            self.take(SCALARS[kind])

    def number(self, name):
        kind, value = self.keys[name]
        return struct.unpack("<" + SCALARS[kind], value)[0]

    def set_number(self, name, value):
        kind, _ = self.keys[name]
        self.keys[name] = (kind, struct.pack("<" + SCALARS[kind], value))


def size_of(shape, kind):
    if kind not in BLOCKS:
        raise ValueError(f"weights of type {kind} are not read here; `sluice quantize IN.gguf "
                         "OUT.gguf --quant F32` writes them as F32")
    weights, size = BLOCKS[kind]
    return math.prod(shape) // weights * size
