#!/usr/bin/env python3
"""Writes text with a checkpoint in plain torch: the check of an export before any other program reads it."""

import argparse
from pathlib import Path

import torch

from evaluate import load
from train import LONG
from vocabulary import Tokenizer


@torch.no_grad()
def generate(model, tokens, count, temperature, ends):
    tokens = list(tokens)
    for _ in range(count):
        logits = model(torch.tensor([tokens[-LONG:]]))[0, -1]
        if temperature == 0:
            token = int(logits.argmax())
        else:
            token = int(torch.multinomial((logits / temperature).softmax(-1), 1))
        if token in ends:
            break
        tokens.append(token)
    return tokens


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("prompt")
    parser.add_argument("--chat", action="store_true", help="the prompt is the turn of a user")
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--temperature", type=float, default=0)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    tokenizer = Tokenizer.load(args.data / "tokenizer.json")
    prompt = args.prompt
    if args.chat:
        prompt = f"<|im_start|>user\n{prompt}<|im_end|>\n<|im_start|>assistant\n"
    ends = [tokenizer.ids["<|endoftext|>"], tokenizer.ids["<|im_end|>"]]
    print(tokenizer.decode(generate(load(args.checkpoint), tokenizer.encode(prompt), args.tokens, args.temperature, ends)))


if __name__ == "__main__":
    main()
