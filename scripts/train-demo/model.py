"""A decoder of the qwen3 kind in plain torch: RMS norm, rotary positions, grouped queries with a norm
on queries and keys, SwiGLU, tied head. The names of the weights are those of Hugging Face's Qwen3.
"""

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F


@dataclass
class Config:
    vocab_size: int
    hidden_size: int = 256
    layers: int = 4
    heads: int = 4
    kv_heads: int = 2
    head_size: int = 64
    ffn_size: int = 768
    rope_theta: float = 10000.0
    norm_eps: float = 1e-6


class RmsNorm(nn.Module):
    def __init__(self, size, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x):
        x = x.float()
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps) * self.weight


def rotate(x, cos, sin):
    """Rotary positions. x: [batch, heads, tokens, head_size]; the halves of a head are the pairs."""
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        queries, keys = config.heads * config.head_size, config.kv_heads * config.head_size
        self.q_proj = nn.Linear(config.hidden_size, queries, bias=False)
        self.k_proj = nn.Linear(config.hidden_size, keys, bias=False)
        self.v_proj = nn.Linear(config.hidden_size, keys, bias=False)
        self.o_proj = nn.Linear(queries, config.hidden_size, bias=False)
        self.q_norm = RmsNorm(config.head_size, config.norm_eps)
        self.k_norm = RmsNorm(config.head_size, config.norm_eps)

    def forward(self, x, cos, sin, mask):
        batch, tokens, _ = x.shape
        c = self.config

        def split(y):
            return y.view(batch, tokens, -1, c.head_size).transpose(1, 2)

        q = rotate(self.q_norm(split(self.q_proj(x))), cos, sin)
        k = rotate(self.k_norm(split(self.k_proj(x))), cos, sin)
        v = split(self.v_proj(x))
        # The queries that share a head of keys are further rows of one product.
        share = c.heads // c.kv_heads
        q = q.reshape(batch, c.kv_heads, share * tokens, c.head_size) * c.head_size**-0.5
        scores = (q @ k.transpose(-1, -2)).float().view(batch, c.kv_heads, share, tokens, tokens)
        weights = (scores + mask).softmax(-1).view(batch, c.kv_heads, share * tokens, tokens)
        mixed = (weights.to(v.dtype) @ v).view(batch, c.heads, tokens, c.head_size)
        return self.o_proj(mixed.transpose(1, 2).reshape(batch, tokens, -1))


class FeedForward(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.ffn_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.ffn_size, bias=False)
        self.down_proj = nn.Linear(config.ffn_size, config.hidden_size, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.input_layernorm = RmsNorm(config.hidden_size, config.norm_eps)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = RmsNorm(config.hidden_size, config.norm_eps)
        self.mlp = FeedForward(config)

    def forward(self, x, cos, sin, mask):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin, mask)
        return x + self.mlp(self.post_attention_layernorm(x))


class Model(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))
        self.norm = RmsNorm(config.hidden_size, config.norm_eps)
        for weight in self.parameters():
            if weight.dim() == 2:
                nn.init.normal_(weight, std=0.02)

    def forward(self, tokens):
        """tokens: [batch, tokens]. Returns the logits of the following tokens, [batch, tokens, vocabulary]."""
        c, count = self.config, tokens.shape[1]
        frequencies = c.rope_theta ** (-torch.arange(0, c.head_size, 2) / c.head_size)
        angles = torch.arange(count)[:, None] * frequencies
        mask = torch.full((count, count), float("-inf")).triu(1)
        x = self.embed_tokens(tokens)
        for layer in self.layers:
            x = layer(x, angles.cos(), angles.sin(), mask)
        return F.linear(self.norm(x), self.embed_tokens.weight)
