#!/usr/bin/env python3
"""Writes a checkpoint as a Hugging Face folder: config, weights, tokenizer and chat template."""

import argparse
import json
import shutil
from pathlib import Path

import torch

from model import Config
from train import LONG
from vocabulary import Tokenizer

# Each turn as the corpus has it; the last line opens the answer.
CHAT_TEMPLATE = (
    "{%- for message in messages -%}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}")


def write_safetensors(path, tensors):
    """tensors: name to float32 tensor. The format: eight bytes of length, a JSON header, the data."""
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, tensor in tensors.items():
        size = tensor.numel() * 4
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(len(text).to_bytes(8, "little") + text)
        for tensor in tensors.values():
            out.write(tensor.float().contiguous().numpy().tobytes())


def write_json(path, value):
    path.write_text(json.dumps(value, indent=2) + "\n")


def model_config(config, end):
    return {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "vocab_size": config.vocab_size,
            "hidden_size": config.hidden_size, "intermediate_size": config.ffn_size,
            "num_hidden_layers": config.layers, "num_attention_heads": config.heads,
            "num_key_value_heads": config.kv_heads, "head_dim": config.head_size, "hidden_act": "silu",
            "max_position_embeddings": LONG, "rms_norm_eps": config.norm_eps, "rope_theta": config.rope_theta,
            "rope_scaling": None, "attention_bias": False, "attention_dropout": 0.0, "use_sliding_window": False,
            "tie_word_embeddings": True, "initializer_range": 0.02, "torch_dtype": "float32", "use_cache": True,
            "bos_token_id": None, "eos_token_id": end}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("out", type=Path)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    state = torch.load(args.checkpoint)
    ids = Tokenizer.load(args.data / "tokenizer.json").ids
    turn_end, text_end = ids["<|im_end|>"], ids["<|endoftext|>"]

    write_safetensors(args.out / "model.safetensors",
                      {"model." + name: tensor for name, tensor in state["model"].items()})
    write_json(args.out / "config.json", model_config(Config(**state["config"]), turn_end))
    write_json(args.out / "generation_config.json",
               {"eos_token_id": [turn_end, text_end], "pad_token_id": text_end, "do_sample": True,
                "temperature": 0.7, "top_p": 0.95})
    write_json(args.out / "tokenizer_config.json",
               {"tokenizer_class": "Qwen2Tokenizer", "add_bos_token": False, "add_prefix_space": False,
                "bos_token": None, "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "unk_token": None,
                "model_max_length": LONG, "chat_template": CHAT_TEMPLATE})
    shutil.copy(args.data / "tokenizer.json", args.out / "tokenizer.json")


if __name__ == "__main__":
    main()
