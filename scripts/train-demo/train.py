#!/usr/bin/env python3
"""Trains the model on DATA/train.tokens; stops on SIGTERM and goes on where it stopped.

The learning rate follows the processor time that training has used, so that other work on the
machine, or a pause, delays the schedule and does not shorten it. Matrices inside the layers learn with Muon (Jordan 2024: momentum, made
orthogonal by Newton-Schulz steps), the embedding and the norms with Adam. Products are in bfloat16
where the processor multiplies bfloat16, weights and sums in float32.
"""

import argparse
import csv
import dataclasses
import os
import random
import signal
import time
from pathlib import Path

import numpy
import torch
from torch.nn import functional as F

from model import Config, Model
from vocabulary import Tokenizer

WARM_UP, DECAY_FROM = 0.02, 0.4  # parts of the whole time
SHORT, LONG, LONG_FROM = 256, 512, 0.55  # tokens in a window; the part of the time when long ones begin


def orthogonal(matrices):
    """Newton-Schulz steps towards the nearest orthogonal matrices, with Jordan's coefficients.

    matrices: [count, rows, columns], one shape at a time, for one large product is faster than many.
    """
    tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.bfloat16()
    x = x.transpose(1, 2).contiguous() if tall else x
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(5):
        square = x @ x.transpose(1, 2)
        x = 3.4445 * x + (-4.7750 * square + 2.0315 * square @ square) @ x
    return (x.transpose(1, 2) if tall else x).float()


class Muon(torch.optim.Optimizer):
    def __init__(self, parameters, lr, momentum=0.95):
        super().__init__(parameters, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self):
        group = self.param_groups[0]
        for shape in sorted({weight.shape for weight in group["params"]}):
            weights = [weight for weight in group["params"] if weight.shape == shape]
            updates = orthogonal(torch.stack([self.direction(weight, group["momentum"]) for weight in weights]))
            for weight, update in zip(weights, updates):
                weight.add_(update, alpha=-group["lr"] * max(1, shape[0] / shape[1]) ** 0.5)

    def direction(self, weight, momentum):
        """The gradient with Nesterov's momentum."""
        state = self.state[weight]
        if not state:
            state["momentum"] = torch.zeros_like(weight)
        average = state["momentum"].lerp_(weight.grad, 1 - momentum)
        return weight.grad.lerp(average, momentum)


def rate(progress):
    """The learning rate as a part of its peak; progress is the part of the time that has passed."""
    if progress < WARM_UP:
        return 0.1 + 0.9 * progress / WARM_UP
    return min(1.0, max(0.0, 1 - progress) / (1 - DECAY_FROM))


def windows(tokens, count, length, random):
    starts = [random.randrange(len(tokens) - length - 1) for _ in range(count)]
    rows = numpy.stack([tokens[at:at + length + 1] for at in starts]).astype(numpy.int64)
    return torch.from_numpy(rows)


def loss_of(model, rows):
    """Mean cross entropy of the next token, in nats. rows: [batch, tokens + 1]."""
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = model(rows[:, :-1])
    return F.cross_entropy(logits.float().flatten(0, 1), rows[:, 1:].flatten())


class Training:
    def __init__(self, args):
        self.args = args
        self.tokens = numpy.fromfile(args.data / "train.tokens", dtype=numpy.uint16)
        held_out = numpy.fromfile(args.data / "held-out.tokens", dtype=numpy.uint16)
        self.held_out = windows(held_out, 16, LONG, random.Random(0))
        pieces = len(Tokenizer.load(args.data / "tokenizer.json").pieces)
        torch.manual_seed(args.seed)
        self.random = random.Random(args.seed)
        self.model = Model(Config(vocab_size=pieces, layers=args.layers))
        inner = [w for name, w in self.model.named_parameters() if w.dim() == 2 and "embed" not in name]
        outer = [w for name, w in self.model.named_parameters() if w.dim() != 2 or "embed" in name]
        self.peaks = (args.muon_rate, args.adam_rate)
        self.optimizers = (Muon(inner, args.muon_rate), torch.optim.Adam(outer, args.adam_rate, betas=(0.9, 0.98)))
        self.step, self.seen, self.minutes, self.mean = 0, 0, 0.0, None
        self.checkpoint = args.out / "checkpoint.pt"
        if self.checkpoint.exists():
            self.restore(torch.load(self.checkpoint))

    def restore(self, state):
        self.model.load_state_dict(state["model"])
        for optimizer, saved in zip(self.optimizers, state["optimizers"]):
            optimizer.load_state_dict(saved)
        self.random.setstate(state["random"])
        self.step, self.seen, self.minutes, self.mean = state["position"]

    def save(self):
        """Replaces the checkpoint in one step, so that there is always a whole one."""
        state = {"config": dataclasses.asdict(self.model.config), "model": self.model.state_dict(),
                 "optimizers": [one.state_dict() for one in self.optimizers], "random": self.random.getstate(),
                 "position": (self.step, self.seen, self.minutes, self.mean)}
        torch.save(state, self.checkpoint.with_suffix(".new"))
        os.replace(self.checkpoint.with_suffix(".new"), self.checkpoint)

    def advance(self):
        """One step on one batch."""
        progress = self.minutes / self.args.minutes
        for optimizer, peak in zip(self.optimizers, self.peaks):
            optimizer.param_groups[0]["lr"] = peak * rate(progress)
        length = SHORT if progress < LONG_FROM else LONG
        loss = loss_of(self.model, windows(self.tokens, self.args.batch // length, length, self.random))
        self.model.zero_grad(set_to_none=True)
        loss.backward()
        for optimizer in self.optimizers:
            optimizer.step()
        self.step += 1
        self.seen += self.args.batch
        self.mean = loss.item() if self.mean is None else 0.95 * self.mean + 0.05 * loss.item()

    def log(self):
        with torch.no_grad():
            held_out = loss_of(self.model, self.held_out).item()
        path = self.args.out / "curve.csv"
        new = not path.exists()
        with open(path, "a", newline="") as out:
            writer = csv.writer(out)
            if new:
                writer.writerow(["step", "minutes", "tokens", "train_loss", "held_out_loss"])
            writer.writerow([self.step, f"{self.minutes:.2f}", self.seen, f"{self.mean:.4f}", f"{held_out:.4f}"])
        print(f"step {self.step}  {self.minutes:.1f} min  {self.seen} tokens  "
              f"train {self.mean:.4f}  held-out {held_out:.4f}", flush=True)

    def run(self):
        """Trains until the processor time is used or a signal says stop."""
        stop = []
        signal.signal(signal.SIGTERM, lambda *_: stop.append(True))
        signal.signal(signal.SIGINT, lambda *_: stop.append(True))
        before, saved = time.process_time(), time.monotonic()
        while self.minutes < self.args.minutes and not stop:
            self.advance()
            self.minutes, before = self.minutes + (time.process_time() - before) / 60, time.process_time()
            if self.step % self.args.log_every == 0:
                self.log()
            if time.monotonic() - saved > 60 * self.args.save_every:
                self.save()
                saved = time.monotonic()
        self.log()
        self.save()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--minutes", type=float, default=60, help="processor time to train, over all runs")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--batch", type=int, default=4096, help="tokens in a step")
    parser.add_argument("--muon-rate", type=float, default=0.02)
    parser.add_argument("--adam-rate", type=float, default=0.003)
    parser.add_argument("--save-every", type=float, default=3, help="minutes between checkpoints")
    parser.add_argument("--log-every", type=int, default=25, help="steps between lines of the log")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    args.out.mkdir(parents=True, exist_ok=True)
    Training(args).run()


if __name__ == "__main__":
    main()
