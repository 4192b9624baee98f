#!/usr/bin/env python3
"""Measures a checkpoint on held-out text, beside the generator's entropy and n-gram models, and draws the curve.

Writes OUT/evaluation.json and OUT/curve.svg.
"""

import argparse
import csv
import json
import math
from collections import Counter, defaultdict
from pathlib import Path

import numpy
import torch

from model import Config, Model
from train import LONG, loss_of
from vocabulary import Tokenizer


def load(path):
    state = torch.load(path)
    model = Model(Config(**state["config"]))
    model.load_state_dict(state["model"])
    return model.eval()


def documents(tokens, end):
    """The documents, each with the end of the one before it in front and its own end."""
    ends = numpy.flatnonzero(tokens == end)
    return [tokens[a:b + 1] for a, b in zip(ends, ends[1:])]


@torch.no_grad()
def model_bits(model, documents):
    """Bits of the documents, each from its beginning, in windows of the length that was trained."""
    nats = 0.0
    for document in documents:
        for at in range(0, len(document) - 1, LONG):
            row = torch.from_numpy(document[at:at + LONG + 1].astype(numpy.int64))[None]
            nats += loss_of(model, row).item() * (row.shape[1] - 1)
    return nats / math.log(2)


class NGrams:
    """Interpolated Kneser-Ney without its lower-order counts: absolute discounting of 0.75 (Ney et al. 1994)."""

    DISCOUNT = 0.75

    def __init__(self, tokens, order, vocabulary):
        self.order, self.vocabulary = order, vocabulary
        self.counts = [defaultdict(Counter) for _ in range(order)]
        tokens = tokens.tolist()
        for at, token in enumerate(tokens):
            for length in range(min(order - 1, at) + 1):
                self.counts[length][tuple(tokens[at - length:at])][token] += 1
        self.totals = [{context: sum(following.values()) for context, following in level.items()}
                       for level in self.counts]

    def probability(self, context, token):
        p = 1 / self.vocabulary
        for length in range(min(len(context), self.order - 1) + 1):
            key = context[len(context) - length:]
            following = self.counts[length].get(key)
            if not following:
                break
            total = self.totals[length][key]
            p = (max(following[token] - self.DISCOUNT, 0) + self.DISCOUNT * len(following) * p) / total
        return p

    def bits(self, documents):
        bits = 0.0
        for document in documents:
            row = tuple(document.tolist())
            for at in range(1, len(row)):
                bits -= math.log2(self.probability(row[max(0, at - self.order + 1):at], row[at]))
        return bits


def draw_curve(rows, floor, path):
    """The losses over the processor time as an SVG; floor is the generator's entropy a token, in nats."""
    width, height, left, bottom = 720, 360, 60, 44
    minutes = [float(row["minutes"]) for row in rows]
    top, low, last = 8.0, min(0.1, floor / 1.5), max(minutes)

    def x(minute):
        return left + (width - left - 16) * minute / last

    def y(loss):
        part = (math.log(min(loss, top)) - math.log(low)) / (math.log(top) - math.log(low))
        return 16 + (height - bottom - 16) * (1 - part)

    def line(column, colour):
        points = " ".join(f"{x(m):.1f},{y(float(row[column])):.1f}" for m, row in zip(minutes, rows))
        return f'<polyline fill="none" stroke="{colour}" stroke-width="1.5" points="{points}"/>'

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
           f'font-size="12"><rect width="{width}" height="{height}" fill="white"/>']
    for loss in (0.1, 0.2, 0.5, 1, 2, 4, 8):
        if loss >= low:
            out.append(f'<path d="M{left} {y(loss):.1f}H{width - 16}" stroke="#ddd"/>'
                       f'<text x="{left - 8}" y="{y(loss) + 4:.1f}" text-anchor="end">{loss}</text>')
    for part in range(5):
        minute = last * part / 4
        out.append(f'<text x="{x(minute):.1f}" y="{height - 24}" text-anchor="middle">{minute:.0f}</text>')
    out += [line("train_loss", "#8ab"), line("held_out_loss", "#c40"),
            f'<path d="M{left} {y(floor):.1f}H{width - 16}" stroke="#080" stroke-dasharray="6 4"/>',
            f'<text x="{width / 2}" y="{height - 6}" text-anchor="middle">minutes of processor time</text>',
            f'<text x="{width - 20}" y="32" text-anchor="end" fill="#68a">training, running mean (nats a token)</text>',
            f'<text x="{width - 20}" y="48" text-anchor="end" fill="#c40">held-out</text>',
            f'<text x="{width - 20}" y="64" text-anchor="end" fill="#080">entropy of the generator</text>', "</svg>"]
    path.write_text("\n".join(out) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path, help="where train.py wrote its checkpoint and curve")
    parser.add_argument("--documents", type=int, help="of the held-out ones; all when not given")
    parser.add_argument("--n-gram-tokens", type=int, default=3_000_000, help="tokens that the n-grams count")
    args = parser.parse_args()
    torch.set_num_threads(2)

    tokenizer = Tokenizer.load(args.data / "tokenizer.json")
    held_out = numpy.fromfile(args.data / "held-out.tokens", dtype=numpy.uint16)
    some = documents(held_out, tokenizer.ids["<|endoftext|>"])[:args.documents]
    predicted = sum(len(document) - 1 for document in some)
    corpus = json.loads((args.data / "corpus.json").read_text())["held-out"]
    train = numpy.fromfile(args.data / "train.tokens", dtype=numpy.uint16, count=args.n_gram_tokens)

    bits = {"generator": corpus["bits"] / len(held_out), "model": model_bits(load(args.out / "checkpoint.pt"), some) / predicted}
    for order in (3, 5):
        bits[f"{order}-gram"] = NGrams(train, order, len(tokenizer.pieces)).bits(some) / predicted
    characters = sum(len(tokenizer.decode(document[1:-1])) for document in some)
    result = {name: {"bits_per_token": round(value, 4), "perplexity": round(2**value, 4),
                     "bits_per_character": round(value * predicted / characters, 4)} for name, value in bits.items()}
    (args.out / "evaluation.json").write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2))
    with open(args.out / "curve.csv", newline="") as rows:
        draw_curve(list(csv.DictReader(rows)), bits["generator"] * math.log(2), args.out / "curve.svg")


if __name__ == "__main__":
    main()
