"""Small vocabularies as GGUF files without weights, and random texts, to compare tokenizers with.

The vocabularies mean nothing; they are made so that a text cut in the wrong place shows in the ids.
"""

import struct
import unicodedata

# Types of metadata and of tokens.
UINT8, UINT32, INT32, FLOAT32, BOOL, STRING, ARRAY = 0, 4, 5, 6, 7, 8, 9
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6

# Found in every text, whatever the options; it stands between texts that are compared in one go.
SEPARATOR = "<|between|>"
# Written out in some texts.
MARKUP = ["<|im_start|>", "<|im_end|>", "<s>", "</s>", "<|user|>", "<|user|>extra", "<tool>"]
SPECIALS = [(text, CONTROL) for text in MARKUP[:-1]] + [("<tool>", USER_DEFINED),
                                                       (SEPARATOR, USER_DEFINED)]

CONTRACTIONS = ["'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'S", "'LL", "'Re", "\u2019s"]
SPACES = [" ", " ", " ", "  ", "\n", "\n\n", "\r", "\r\n", "\t", "\v", "\f", "\u00a0", "\u3000",
          "\u2028", "\u0085", "\u180e", "\u200b", "\ufeff", "\u1680"]
WORDS = ["Hello", "world", "iPhone", "getURL", "HTTPServer", "caf\u00e9", "na\u00efve",
         "\u00c9cole", "\u01c5a", "\u02b0x", "\u03a3\u03b1\u03c2",
         "\u041c\u043e\u0441\u043a\u0432\u0430",
         "\u4f60\u597d", "\u3053\u3093\u306b\u3061\u306f", "\u30ab\u30bf", "\uc548\ub155",
         "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35", "\u0939\u093f\u0928\u094d\u0926\u0940",
         "\u0627\u0644\u0639\u0631\u0628", "\u05d0\u05d1", "e\u0301", "\u0301", "\u2160\u2171",
         "\u00bd", "\u0663\u0664", "\U0001f642", "\U0001f468\u200d\U0001f469", "\ue000", "\u0000",
         "ABC", "x", "A", "\u00aa", "\u212a", "\u017f", "\u2e80", "\u3005"]
SYMBOLS = list("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~") + ["\u2026", "\u3002", "\uff0c", "\u20ac",
                                                       "\u2014", "//", "...", "!\n", "/\r\n"]
ALPHABET = sorted(set("".join(CONTRACTIONS + SPACES + WORDS + SYMBOLS) + "0123456789abcdefghijklm"))


def random_text(random, length, markup):
    """Up to `length` pieces. No character that this Python's Unicode does not know, and no U+2581,
    which sluice keeps apart from the space."""
    kinds = [WORDS, WORDS, SPACES, SPACES, SYMBOLS, SYMBOLS, CONTRACTIONS, ALPHABET]
    if markup:
        kinds.append(MARKUP)
    pieces = []
    for _ in range(random.randint(1, length)):
        draw = random.random()
        if draw < 0.1:
            pieces.append(str(random.randrange(10 ** random.randint(1, 9))))
        elif draw < 0.2:
            pieces.append(random_character(random))
        elif draw < 0.25:
            pieces.append(random.choice(random.choice(kinds)) * random.randint(2, 12))
        else:
            pieces.append(random.choice(random.choice(kinds)))
    return "".join(pieces).replace("\u2581", "")


def ascii_part(text):
    """What of the text is printable or white space in ASCII."""
    return "".join(c for c in text if " " <= c <= "~" or c in "\t\n\v\f\r")


def random_character(random):
    while True:
        character = chr(random.randrange(random.choice([0x80, 0x800, 0x10000, 0x110000])))
        if unicodedata.category(character) not in ("Cn", "Cs"):
            return character


def byte_alphabet():
    """GPT-2's character for each byte."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]


def byte_level(random, pre):
    """Any two bytes merge, in a random order, so that a cut changes the tokens around it; and some
    words are tokens that no merge makes."""
    alphabet = byte_alphabet()
    tokens = list(alphabet)
    merges = [(left, right) for left in alphabet for right in alphabet]
    random.shuffle(merges)
    tokens += [left + right for left, right in merges]
    pairs = tokens[256:]
    for _ in range(4000):
        left, right = random.choice(pairs), random.choice(tokens)
        if left + right not in tokens[-4000:]:
            merges.append((left, right))
    known = set(tokens)
    for left, right in merges[len(pairs):]:
        if left + right not in known:
            known.add(left + right)
            tokens.append(left + right)
    for word in WORDS + [" " + word for word in WORDS]:
        text = "".join(alphabet[byte] for byte in word.encode())
        if text not in known:
            known.add(text)
            tokens.append(text)
    return finish("gpt2", pre, tokens, [NORMAL] * len(tokens), merges=merges)


def character_tokens(random, count):
    """The alphabet with U+2581 for the space, and random strings over it: pairs to merge, and what
    they make. None has a <: llama.cpp merges text into control tokens, and sluice does not."""
    letters = ["\u2581" if c == " " else c for c in ALPHABET if c not in "\0<"]
    tokens, merges = letters + ["<"], {}
    while len(merges) < count:
        left = random.choice(letters if random.random() < 0.7 else tokens)
        right = random.choice(letters if random.random() < 0.7 else tokens)
        if len(left + right) <= 8 and "\n" not in (left + right).strip("\n"):
            merges.setdefault((left, right), None)
            if left + right not in tokens and random.random() < 0.95:
                tokens.append(left + right)
    return tokens, list(merges)


def with_bytes(tokens):
    """The front that SentencePiece vocabularies have, and the types of all tokens."""
    front = ["<unk>", "<bos>", "<eos>"] + [f"<0x{byte:02X}>" for byte in range(256)]
    types = [UNKNOWN, CONTROL, CONTROL] + [BYTE] * 256 + [NORMAL] * len(tokens)
    return front + tokens, types


def sentencepiece(random, space_prefix):
    tokens, types = with_bytes(character_tokens(random, 3000)[0])
    scores = [float(random.randint(-40, 0)) / 2 for _ in tokens]
    return finish("llama", None, tokens, types, scores=scores, ids=(1, 2),
                  flags={"add_space_prefix": space_prefix})


def gemma4(random):
    tokens, merges = character_tokens(random, 3000)
    tokens, types = with_bytes(tokens)
    return finish("gemma4", None, tokens, types, merges=merges, ids=(1, 2))


def unigram(random, merges_spaces):
    """Tokens of random scores, many of them alike, and a map of characters. What is not among the
    letters is unknown."""
    letters = ["\u2581" if c == " " else c for c in ALPHABET if c not in "\0<" and c != "\u05d1"]
    tokens = dict.fromkeys(letters)
    while len(tokens) < 4000:
        text = "".join(random.choices(letters, k=random.randint(2, 5)))
        # As in real ones, a space stands only in front.
        tokens.setdefault(text[0] + text[1:].replace("\u2581", ""))
    tokens = ["<bos>", "<pad>", "<eos>", "<unk>", *tokens]
    types = [CONTROL] * 3 + [UNKNOWN] + [NORMAL] * (len(tokens) - 4)
    scores = [0.0] * 4 + [-float(random.randint(2, 40)) / 4 for _ in tokens[4:]]
    sources = {c: " " for c in SPACES if len(c) == 1} | {
        "\u2026": "...", "\u00bd": "1\u20442", "e\u0301": "\u00e9", "\u212a": "K", "\u200d": "",
        "'LL": "'ll", "'": "\u2019", "\uff0c": ",", "\u2581": " "}
    metadata = finish("t5", "default", tokens, types, scores=scores, ids=(0, 2),
                      flags={"add_space_prefix": True, "remove_extra_whitespaces": merges_spaces,
                             "add_eos_token": False})
    metadata["tokenizer.ggml.unknown_token_id"] = 3
    metadata["tokenizer.ggml.precompiled_charsmap"] = character_map(sources)
    return metadata


def character_map(replacements):
    """SentencePiece's file of what each text becomes: the size of a double array, as Darts-clone
    has it, the array, and the replacements, each with a NUL behind it."""
    trie, places, texts = {}, {}, b""
    for source, text in replacements.items():
        node = trie
        for byte in source.encode():
            node = node.setdefault(byte, {})
        places[source.encode()] = len(texts)
        texts += text.encode() + b"\0"
    units, taken, bases = {0: 0}, {0}, set()

    def place(index, node, source):
        edges = sorted(node) + [0] * (source in places)
        base = next(b for b in range(1, 1 << 20)
                    if b not in bases and not any(b ^ e in taken for e in edges))
        bases.add(base)
        taken.update(base ^ e for e in edges)
        units[index] = units.get(index, 0) | (base ^ index) << 10
        if source in places:
            units[index] |= 1 << 8
            units[base] = 1 << 31 | places[source]
        for byte in sorted(node):
            units[base ^ byte] = byte
            place(base ^ byte, node[byte], source + bytes([byte]))

    place(0, trie, b"")
    size = (max(units) // 256 + 1) * 256  # so that any child of a node is inside
    array = b"".join(struct.pack("<I", units.get(i, 0)) for i in range(size))
    return struct.pack("<I", len(array)) + array + texts


def finish(model, pre, tokens, types, merges=None, scores=None, ids=(0, 0), flags=None):
    """Adds the special tokens and gives the metadata of the file."""
    tokens = tokens + [text for text, _ in SPECIALS]
    types = types + [kind for _, kind in SPECIALS]
    metadata = {
        "general.architecture": "llama",
        "llama.context_length": 64, "llama.embedding_length": 32, "llama.block_count": 1,
        "llama.feed_forward_length": 32, "llama.attention.head_count": 1,
        "llama.attention.layer_norm_rms_epsilon": 1e-5, "llama.rope.dimension_count": 32,
        "tokenizer.ggml.model": model, "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": types, "tokenizer.ggml.bos_token_id": ids[0],
        "tokenizer.ggml.eos_token_id": ids[1]}
    if pre is not None:
        metadata["tokenizer.ggml.pre"] = pre
    if merges is not None:
        metadata["tokenizer.ggml.merges"] = [f"{left} {right}" for left, right in merges]
    if scores is not None:
        metadata["tokenizer.ggml.scores"] = scores + [0.0] * len(SPECIALS)
    for name, value in (flags or {}).items():
        metadata[f"tokenizer.ggml.{name}"] = value
    return metadata


def gguf(metadata):
    """The bytes of a GGUF file of version 3 with metadata alone."""
    out = [b"GGUF", struct.pack("<IQQ", 3, 0, len(metadata))]
    for key, value in metadata.items():
        out.append(gguf_string(key))
        if isinstance(value, bytes):
            out += [struct.pack("<IIQ", ARRAY, UINT8, len(value)), value]
        elif isinstance(value, list):
            kind = gguf_type(value[0], INT32)
            out.append(struct.pack("<IIQ", ARRAY, kind, len(value)))
            out += [gguf_value(item, kind) for item in value]
        else:
            kind = gguf_type(value, UINT32)
            out += [struct.pack("<I", kind), gguf_value(value, kind)]
    return b"".join(out)


def gguf_type(value, integer):
    # bool is an int too, so it comes first.
    return next(kind for of, kind in ((bool, BOOL), (int, integer), (float, FLOAT32),
                                      (str, STRING)) if isinstance(value, of))


def gguf_string(text):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def gguf_value(value, kind):
    if kind == STRING:
        return gguf_string(value)
    return struct.pack({BOOL: "<?", UINT32: "<I", INT32: "<i", FLOAT32: "<f"}[kind], value)
