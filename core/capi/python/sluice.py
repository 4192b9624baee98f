"""Language models larger than the memory at hand: libsluice.so for Python.

    from sluice import Model

    with Model("model.gguf", budget_bytes=4 << 30) as model:
        for piece in model.generate("One morning", tokens_max=40):
            print(piece, end="", flush=True)
        for piece in model.chat([{"role": "user", "content": "Hello"}]):
            print(piece, end="", flush=True)

It needs nothing but the library, which is found beside an installation, by its name, or at the path
in the environment variable SLUICE_LIBRARY. sluice.h says what everything means; a model may be used
by several threads, and a text by one at a time.
"""

from __future__ import annotations

import ctypes
import json
import os
import threading
from ctypes import POINTER, byref, c_char_p, c_double, c_int, c_int32, c_int64, c_size_t
from ctypes import c_uint32, c_uint64, c_void_p
from pathlib import Path
from types import TracebackType
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence as SequenceOf, Type, Union

__all__ = ["Model", "Sequence", "SluiceError", "Text", "plan", "version"]

ABI_VERSION = 1
DEFAULT = -1
ADD_BOS, PARSE_SPECIAL, RENDER_SPECIAL = 1, 2, 4
FINISHES = ("end", "stop_text", "length", "stopped")

Messages = SequenceOf[Mapping[str, Any]]
Path_ = Union[str, "os.PathLike[str]"]


class SluiceError(Exception):
    """A call that failed. `status` is 1 failure, 2 usage, 3 model, 4 budget, 5 I/O, 6 busy."""

    def __init__(self, status: int, line: str) -> None:
        super().__init__(line)
        self.status = status


class _ModelOptions(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("budget_bytes", c_uint64), ("threads", c_uint32),
                ("context", c_uint32), ("window", c_uint32), ("parallel", c_uint32),
                ("kv", c_char_p), ("io", c_char_p), ("chat_format", c_char_p),
                ("think", c_char_p)]


class _Request(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("prompt", c_char_p), ("tokens", POINTER(c_int32)),
                ("token_count", c_size_t), ("messages", c_char_p), ("tokens_max", c_int64),
                ("temperature", c_double), ("top_p", c_double), ("min_p", c_double),
                ("repeat_penalty", c_double), ("top_k", c_int64), ("seed", c_int64),
                ("stop", POINTER(c_char_p)), ("stop_count", c_size_t), ("settings", c_char_p)]


class _Piece(ctypes.Structure):
    _fields_ = [("text", c_void_p), ("text_bytes", c_size_t), ("thought", c_void_p),
                ("thought_bytes", c_size_t), ("token", c_int32)]


class _Result(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("finish", c_int32), ("reserved", c_uint32),
                ("prompt_tokens", c_uint64), ("shared_tokens", c_uint64),
                ("text_tokens", c_uint64)]


_Callback = ctypes.CFUNCTYPE(c_int, c_void_p, POINTER(_Piece))


def _load() -> ctypes.CDLL:
    name = f"libsluice.so.{ABI_VERSION}"
    given = os.environ.get("SLUICE_LIBRARY")
    # An installation has this file in share/sluice/python and the library in lib or lib/*.
    parents = Path(__file__).resolve().parents
    prefix = parents[3] if len(parents) > 3 else Path("/")
    beside = [*prefix.glob(f"lib*/{name}"), *prefix.glob(f"lib/*/{name}")]
    library = ctypes.CDLL(given or (str(beside[0]) if beside else name))
    signatures: Dict[str, Any] = {
        "plan": [c_char_p, POINTER(_ModelOptions), POINTER(c_void_p)],
        "model_open": [c_char_p, POINTER(_ModelOptions), POINTER(c_void_p)],
        "model_close": [c_void_p],
        "model_info": [c_void_p, POINTER(c_void_p)],
        "tokenize": [c_void_p, c_char_p, c_uint32, POINTER(c_int32), c_size_t, POINTER(c_size_t)],
        "detokenize": [c_void_p, POINTER(c_int32), c_size_t, c_uint32, POINTER(c_void_p),
                       POINTER(c_size_t)],
        "chat_tokens": [c_void_p, c_char_p, POINTER(c_int32), c_size_t, POINTER(c_size_t)],
        "text_begin": [c_void_p, POINTER(_Request), POINTER(c_void_p)],
        "text_next": [c_void_p, POINTER(POINTER(_Piece))],
        "text_stop": [c_void_p],
        "text_result": [c_void_p, POINTER(_Result)],
        "text_tool_calls": [c_void_p, POINTER(c_void_p)],
        "text_close": [c_void_p],
        "sequence_new": [c_void_p, POINTER(c_void_p)],
        "sequence_append": [c_void_p, c_char_p, c_uint32],
        "sequence_append_tokens": [c_void_p, POINTER(c_int32), c_size_t],
        "sequence_generate": [c_void_p, POINTER(_Request), _Callback, c_void_p, POINTER(_Result)],
        "sequence_tokens": [c_void_p, POINTER(c_int32), c_size_t, POINTER(c_size_t)],
        "sequence_truncate": [c_void_p, c_size_t],
        "sequence_close": [c_void_p],
    }
    for function, arguments in signatures.items():
        getattr(library, "sluice_" + function).argtypes = arguments
        getattr(library, "sluice_" + function).restype = c_int
    library.sluice_version.restype = library.sluice_last_error.restype = c_char_p
    library.sluice_abi_version.restype = c_uint32
    library.sluice_free.argtypes, library.sluice_free.restype = [c_void_p], None
    if library.sluice_abi_version() != ABI_VERSION:
        raise ImportError(f"the ABI of {library._name} is {library.sluice_abi_version()}, "
                          f"and this module is for {ABI_VERSION}")
    return library


_library = _load()


def _call(function: str, *arguments: Any) -> None:
    status = getattr(_library, "sluice_" + function)(*arguments)
    if status != 0:
        raise SluiceError(status, _library.sluice_last_error().decode("utf-8", "replace"))


def _bytes(text: Optional[str], name: str) -> Optional[bytes]:
    if text is None:
        return None
    if "\0" in text:
        raise ValueError(f"{name} holds a zero byte")
    return text.encode()


def _integer(kind: Any, number: int, name: str) -> Any:
    """The number as its type in C, to whose size ctypes would cut it without a word."""
    held = kind(number)
    if held.value != number:
        raise ValueError(f"{name} is {number}, which is out of range")
    return held


def _path(path: Path_) -> bytes:
    name = os.fsencode(path)
    if b"\0" in name:
        raise ValueError("the path holds a zero byte")
    return name


def _given_out(function: str, *arguments: Any) -> bytes:
    text = c_void_p()
    _call(function, *arguments, byref(text))
    try:
        return ctypes.string_at(text.value)
    finally:
        _library.sluice_free(text)


def _array(tokens: SequenceOf[int]) -> Any:
    return (c_int32 * len(tokens))(*(_integer(c_int32, token, "a token") for token in tokens))


def _tokens(function: str, *arguments: Any) -> List[int]:
    count = c_size_t()
    _call(function, *arguments, None, 0, byref(count))
    tokens = (c_int32 * count.value)()
    _call(function, *arguments, tokens, count.value, byref(count))
    return list(tokens)[:count.value]


def _options(budget_bytes: int, threads: int, context: int, window: int, parallel: int,
             kv: Optional[str], io: Optional[str], chat_format: Optional[str],
             think: Optional[str]) -> _ModelOptions:
    return _ModelOptions(ctypes.sizeof(_ModelOptions),
                         _integer(c_uint64, budget_bytes, "budget_bytes"),
                         _integer(c_uint32, threads, "threads"),
                         _integer(c_uint32, context, "context"),
                         _integer(c_uint32, window, "window"),
                         _integer(c_uint32, parallel, "parallel"), _bytes(kv, "kv"),
                         _bytes(io, "io"),
                         _bytes(chat_format, "chat_format"), _bytes(think, "think"))


def _request(prompt: Union[str, SequenceOf[int], None] = None, messages: Optional[Messages] = None,
             tokens_max: int = DEFAULT, temperature: float = DEFAULT, top_p: float = DEFAULT,
             min_p: float = DEFAULT, repeat_penalty: float = DEFAULT, top_k: int = DEFAULT,
             seed: int = DEFAULT, stop: SequenceOf[str] = (), **settings: Any) -> _Request:
    request = _Request(size=ctypes.sizeof(_Request),
                       tokens_max=_integer(c_int64, tokens_max, "tokens_max"),
                       temperature=temperature, top_p=top_p, min_p=min_p,
                       repeat_penalty=repeat_penalty, top_k=_integer(c_int64, top_k, "top_k"),
                       seed=_integer(c_int64, seed, "seed"))
    if isinstance(prompt, str):
        request.prompt = _bytes(prompt, "prompt")
    elif prompt is not None:
        request.tokens, request.token_count = _array(prompt), len(prompt)
    if messages is not None:
        request.messages = json.dumps(list(messages)).encode()
    stops = [stop] if isinstance(stop, str) else list(stop)
    if stops:
        request.stop = (c_char_p * len(stops))(*[_bytes(text, "stop") for text in stops])
        request.stop_count = len(stops)
    if settings:
        request.settings = json.dumps(settings).encode()
    return request


def _text_of(address: int, count: int) -> str:
    return ctypes.string_at(address, count).decode("utf-8", "replace")


class _Handle:
    """What is closed at the end of a `with`, by close(), or when it is forgotten."""

    _kind = ""

    def __init__(self) -> None:
        self._handle = c_void_p()

    def close(self) -> None:
        """Does nothing when it is closed already."""
        handle, self._handle = self._handle, c_void_p()
        _call(self._kind + "_close", handle)

    def __del__(self) -> None:
        if getattr(self, "_handle", None) and _call is not None:
            self.close()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self.close()


class Text(_Handle):
    """A text as it comes: an iterator of its pieces. Thoughts in front of an answer are gathered in
    `thought`. Closing it, or leaving its loop and forgetting it, ends it."""

    _kind = "text"

    def __init__(self, model: "Model", request: _Request) -> None:
        super().__init__()
        self._model = model
        self.thought = ""
        self.tokens: List[int] = []
        _call("text_begin", model._handle, byref(request), byref(self._handle))

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        piece = POINTER(_Piece)()
        while True:
            _call("text_next", self._handle, byref(piece))
            if not piece:
                raise StopIteration
            told = piece.contents
            if told.token >= 0:
                self.tokens.append(told.token)
            self.thought += _text_of(told.thought, told.thought_bytes)
            if told.text_bytes:
                return _text_of(told.text, told.text_bytes)

    def stop(self) -> None:
        """Ends the text soon; any thread may call it."""
        _call("text_stop", self._handle)

    @property
    def result(self) -> Dict[str, Any]:
        """How the text ended: "finish", "prompt_tokens", "shared_tokens", "text_tokens"."""
        result = _Result(size=ctypes.sizeof(_Result))
        _call("text_result", self._handle, byref(result))
        return _facts(result)

    @property
    def tool_calls(self) -> Optional[List[Dict[str, Any]]]:
        return json.loads(_given_out("text_tool_calls", self._handle))


def _facts(result: _Result) -> Dict[str, Any]:
    return {"finish": FINISHES[result.finish], "prompt_tokens": result.prompt_tokens,
            "shared_tokens": result.shared_tokens, "text_tokens": result.text_tokens}


class Sequence(_Handle):
    """Tokens that grow: what is appended, and what the model writes behind it."""

    _kind = "sequence"

    def __init__(self, model: "Model") -> None:
        super().__init__()
        self._model = model
        _call("sequence_new", model._handle, byref(self._handle))

    def append(self, text: Union[str, SequenceOf[int]], parse_special: bool = False) -> None:
        if isinstance(text, str):
            _call("sequence_append", self._handle, _bytes(text, "text"),
                  PARSE_SPECIAL if parse_special else 0)
        else:
            _call("sequence_append_tokens", self._handle, _array(text), len(text))

    def generate(self, **settings: Any) -> str:
        """Continues the sequence, and returns what was written. Takes what Model.generate() does,
        but for the prompt."""
        request = _request(**settings)
        written: List[str] = []
        failures: List[SluiceError] = []
        ends = threading.Event()

        def take(_: Any, piece: Any) -> int:
            written.append(_text_of(piece.contents.text, piece.contents.text_bytes))
            return int(ends.is_set())

        def write() -> None:
            try:
                _call("sequence_generate", self._handle, byref(request), _Callback(take), None,
                      None)
            except SluiceError as error:
                failures.append(error)

        # On another thread: what Ctrl-C raises within a callback would be lost.
        thread = threading.Thread(target=write)
        thread.start()
        try:
            thread.join()
        except BaseException:
            ends.set()
            thread.join()
            raise
        if failures:
            raise failures[0]
        return "".join(written)

    @property
    def tokens(self) -> List[int]:
        return _tokens("sequence_tokens", self._handle)

    def truncate(self, count: int) -> None:
        _call("sequence_truncate", self._handle, _integer(c_size_t, count, "count"))


class Model(_Handle):
    """An open model. The options are those of sluice_model_options; 0 and None stand for what the
    program does where an option is not given."""

    _kind = "model"

    def __init__(self, path: Path_, *, budget_bytes: int = 0, threads: int = 0, context: int = 0,
                 window: int = 0, parallel: int = 0, kv: Optional[str] = None,
                 io: Optional[str] = None, chat_format: Optional[str] = None,
                 think: Optional[str] = None) -> None:
        super().__init__()
        options = _options(budget_bytes, threads, context, window, parallel, kv, io, chat_format,
                           think)
        _call("model_open", _path(path), byref(options), byref(self._handle))

    def __enter__(self) -> "Model":
        return self

    def generate(self, prompt: Union[str, SequenceOf[int]], **settings: Any) -> Text:
        """Goes on with a text or with tokens. Settings: tokens_max, temperature, top_p, top_k,
        min_p, repeat_penalty, seed, stop, and the other members of a request, such as grammar and
        response_format (docs/batch.md)."""
        return Text(self, _request(prompt=prompt, **settings))

    def chat(self, messages: Union[str, Messages], **settings: Any) -> Text:
        """Answers a conversation, or the only message."""
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        return Text(self, _request(messages=messages, **settings))

    def sequence(self) -> Sequence:
        return Sequence(self)

    def tokenize(self, text: str, add_bos: bool = True, parse_special: bool = False) -> List[int]:
        flags = (ADD_BOS if add_bos else 0) | (PARSE_SPECIAL if parse_special else 0)
        return _tokens("tokenize", self._handle, _bytes(text, "text"), flags)

    def detokenize(self, tokens: SequenceOf[int], render_special: bool = False) -> str:
        text, count = c_void_p(), c_size_t()
        _call("detokenize", self._handle, _array(tokens), len(tokens),
              RENDER_SPECIAL if render_special else 0, byref(text), byref(count))
        try:
            return _text_of(text.value or 0, count.value)
        finally:
            _library.sluice_free(text)

    def chat_tokens(self, messages: Messages) -> List[int]:
        """The tokens that make the model answer a conversation."""
        return _tokens("chat_tokens", self._handle, json.dumps(list(messages)).encode())

    @property
    def info(self) -> Dict[str, Any]:
        return json.loads(_given_out("model_info", self._handle))


def plan(path: Path_, *, budget_bytes: int = 0, threads: int = 0, context: int = 0,
         window: int = 0, parallel: int = 0, kv: Optional[str] = None,
         io: Optional[str] = None) -> Dict[str, Any]:
    """What opening the model would hold in memory."""
    options = _options(budget_bytes, threads, context, window, parallel, kv, io, None, None)
    return json.loads(_given_out("plan", _path(path), byref(options)))


def version() -> str:
    return _library.sluice_version().decode()
