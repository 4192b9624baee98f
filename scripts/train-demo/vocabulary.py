#!/usr/bin/env python3
"""Trains a byte-level BPE vocabulary: reads DATA/train.txt, writes DATA/tokenizer.json and the tokens.

Byte pair encoding as in Sennrich et al. 2016, on the words of the qwen2 pre-tokeniser, with bytes
written as in GPT-2. The corpus is ASCII, so the pre-tokeniser needs ASCII classes only.
"""

import argparse
import json
import re
from collections import Counter, defaultdict
from pathlib import Path

import numpy

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
QWEN2 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
         r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
WORDS = re.compile(QWEN2.replace(r"\p{L}\p{N}", "a-zA-Z0-9").replace(r"\p{L}", "[a-zA-Z]").replace(r"\p{N}", "[0-9]"))
SPLIT = re.compile("(" + "|".join(re.escape(one) for one in SPECIAL) + ")")


def byte_letters():
    """GPT-2's printable letter for each byte."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = {byte: chr(byte) for byte in printable}
    others = [byte for byte in range(256) if byte not in letters]
    letters.update({byte: chr(256 + at) for at, byte in enumerate(others)})
    return letters


def join(word, pair):
    """The word with each occurrence of the pair made one piece."""
    out = []
    for piece in word:
        if out and (out[-1], piece) == pair and not out_is_joined:
            out[-1] += piece
            out_is_joined = True
        else:
            out.append(piece)
            out_is_joined = False
    return tuple(out)


def train(counts, merges_wanted):
    """counts: how often each word occurs. Returns the merges, the most frequent pair first."""
    letters = byte_letters()
    words = [[tuple(letters[byte] for byte in word.encode()), count] for word, count in sorted(counts.items())]
    pairs, where = Counter(), defaultdict(set)

    def count_pairs(index, sign):
        word, count = words[index]
        for pair in zip(word, word[1:]):
            pairs[pair] += sign * count
            where[pair].add(index)

    for index in range(len(words)):
        count_pairs(index, 1)
    merges = []
    while len(merges) < merges_wanted and pairs:
        pair = max(pairs, key=lambda one: (pairs[one], one))
        if pairs[pair] < 2:
            break
        merges.append(pair)
        for index in sorted(where.pop(pair)):
            count_pairs(index, -1)
            words[index][0] = join(words[index][0], pair)
            count_pairs(index, 1)
        del pairs[pair]
    return merges


class Tokenizer:
    def __init__(self, merges):
        self.letters = byte_letters()
        self.bytes = {letter: byte for byte, letter in self.letters.items()}
        self.merges = [tuple(pair) for pair in merges]
        self.rank = {pair: rank for rank, pair in enumerate(self.merges)}
        pieces = [*sorted(self.letters.values()), *("".join(pair) for pair in self.merges)]
        self.pieces = [*dict.fromkeys(pieces), *SPECIAL]
        self.ids = {piece: at for at, piece in enumerate(self.pieces)}
        self.cache = {}

    @staticmethod
    def load(path):
        return Tokenizer(json.loads(Path(path).read_text())["model"]["merges"])

    def word(self, word):
        if word not in self.cache:
            pieces = tuple(self.letters[byte] for byte in word.encode())
            while len(pieces) > 1:
                pair = min(zip(pieces, pieces[1:]), key=lambda one: self.rank.get(one, len(self.rank)))
                if pair not in self.rank:
                    break
                pieces = join(pieces, pair)
            self.cache[word] = [self.ids[piece] for piece in pieces]
        return self.cache[word]

    def encode(self, text):
        tokens = []
        for part in SPLIT.split(text):
            if part in SPECIAL:
                tokens.append(self.ids[part])
            else:
                for word in WORDS.findall(part):
                    tokens.extend(self.word(word))
        return tokens

    def decode(self, tokens):
        out = bytearray()
        for token in tokens:
            piece = self.pieces[token]
            out += piece.encode() if piece in SPECIAL else bytes(self.bytes[letter] for letter in piece)
        return out.decode(errors="replace")

    def to_json(self):
        """The tokenizer.json of Hugging Face's library."""
        ordinary = len(self.pieces) - len(SPECIAL)
        added = [{"id": self.ids[one], "content": one, "single_word": False, "lstrip": False,
                  "rstrip": False, "normalized": False, "special": True} for one in SPECIAL]
        split = {"type": "Split", "pattern": {"Regex": QWEN2}, "behavior": "Isolated", "invert": False}
        byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
        return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
                "normalizer": {"type": "NFC"},
                "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level]},
                "post_processor": byte_level, "decoder": byte_level,
                "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "",
                          "end_of_word_suffix": "", "fuse_unk": False, "byte_fallback": False,
                          "vocab": {piece: self.ids[piece] for piece in self.pieces[:ordinary]},
                          "merges": [list(pair) for pair in self.merges]}}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--pieces", type=int, default=2048)
    args = parser.parse_args()
    texts = {part: (args.data / f"{part}.txt").read_text("ascii") for part in ("train", "held-out")}
    counts = Counter()
    for part in SPLIT.split(texts["train"]):
        if part not in SPECIAL:
            counts.update(WORDS.findall(part))
    tokenizer = Tokenizer(train(counts, args.pieces - 256 - len(SPECIAL)))
    (args.data / "tokenizer.json").write_text(json.dumps(tokenizer.to_json(), ensure_ascii=False, indent=1) + "\n")
    for part, text in texts.items():
        tokens = numpy.array(tokenizer.encode(text), dtype=numpy.uint16)
        tokens.tofile(args.data / f"{part}.tokens")
        print(f"{part}: {len(text)} characters, {len(tokens)} tokens, {len(text) / len(tokens):.2f} characters a token")
    print(f"{len(tokenizer.pieces)} pieces, {len(counts)} different words")


if __name__ == "__main__":
    main()
