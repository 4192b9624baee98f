"""Templates with choices, and the sum of the information that the choices carry.

A template is text with [alternatives|separated by bars], which may nest and may be empty, with
{dotted.names} that are looked up in a scope, and with <rules> that stand for other templates.
All alternatives of a choice are equally likely; each choice adds log2 of their number to `bits`.
"""

import math
import random
import re
from functools import lru_cache

TOKEN = re.compile(r"[\[\]|]|\{[\w.]+\}|<\w+>|[^\[\]|{}<>]+")


def parse(tokens, position):
    """Parses up to the bar or bracket that ends this branch; returns the parts and where it ends."""
    parts = []
    while position < len(tokens) and tokens[position] not in "|]":
        token = tokens[position]
        if token == "[":
            branches = []
            while token in "[|":
                branch, position = parse(tokens, position + 1)
                branches.append(branch)
                token = tokens[position]
            parts.append(("choice", branches))
        elif token[0] == "{":
            parts.append(("name", token[1:-1].split(".")))
        elif token[0] == "<":
            parts.append(("rule", token[1:-1]))
        else:
            parts.append(("text", token))
        position += 1
    return parts, position


@lru_cache(maxsize=None)
def compiled(template):
    tokens = TOKEN.findall(template)
    if "".join(tokens) != template:
        raise ValueError(f"not a template: {template}")
    parts, end = parse(tokens, 0)
    if end != len(tokens):
        raise ValueError(f"brackets do not match: {template}")
    return parts


class Speaker:
    """Draws from a seeded generator and counts the bits of everything it draws."""

    def __init__(self, seed, rules):
        self.random = random.Random(seed)
        self.rules = rules
        self.bits = 0.0

    def pick(self, options):
        self.bits += math.log2(len(options))
        return options[self.random.randrange(len(options))]

    def pick_weighted(self, options):
        """options: pairs of a weight and a value."""
        total = sum(weight for weight, _ in options)
        at = self.random.random() * total
        for weight, value in options:
            at -= weight
            if at < 0:
                break
        self.bits -= math.log2(weight / total)
        return value

    def chance(self, p):
        happens = self.random.random() < p
        self.bits -= math.log2(p if happens else 1 - p)
        return happens

    def say(self, template, scope):
        out = []
        self._say(compiled(template), scope, out)
        return tidy("".join(out))

    def _say(self, parts, scope, out):
        for kind, value in parts:
            if kind == "text":
                out.append(value)
            elif kind == "name":
                found = scope[value[0]]
                for attribute in value[1:]:
                    found = getattr(found, attribute)
                out.append(found)
            elif kind == "rule":
                self._say(compiled(self.rules[value]), scope, out)
            else:
                self._say(self.pick(value), scope, out)


SENTENCE_START = re.compile(r'(^|\n|[.!?] "?|\." |(?:^|[\s])")([a-z])')


def tidy(text):
    """One space between words, none at the ends of lines, and a capital where a sentence begins."""
    text = re.sub(r" {2,}", " ", text)
    text = re.sub(r" ?\n ?", "\n", text).strip()
    return SENTENCE_START.sub(lambda found: found[1] + found[2].upper(), text)
