"""The module sluice, on a model that the test names: run by capi_test."""

import ctypes
import gc
import signal
import sys
import threading

import sluice
from sluice import Model, SluiceError

demo = sys.argv[1]


def fails(status, says, work):
    try:
        work()
    except SluiceError as error:
        assert error.status == status, (error.status, error)
        assert says in str(error), error
        return
    raise AssertionError(f"nothing was thrown: {says}")


# The struct that has no size of its own to be checked by.
assert ctypes.sizeof(sluice._Piece) == 40 and sluice._Piece.token.offset == 32

planned = sluice.plan(demo, context=256, budget_bytes=1 << 30)
assert planned["fits"] and planned["context"] == 256
assert planned["total_bytes"] == sum(line["bytes"] for line in planned["lines"])

with Model(demo, context=256, threads=1) as model:
    assert model.info["has_chat"] and model.info["context"] == 256
    tokens = model.tokenize("héllo, fox", add_bos=False)
    assert model.detokenize(tokens) == "héllo, fox"

    text = model.generate("One morning", tokens_max=24, temperature=0)
    whole = "".join(text)
    assert text.result["text_tokens"] == 24 == len(text.tokens), text.result
    assert text.result["finish"] == "length" and text.tool_calls is None
    of_tokens = model.generate(model.tokenize("One morning"), tokens_max=24, temperature=0)
    assert "".join(of_tokens) == whole

    stopped = model.generate("One morning", tokens_max=100, temperature=0, stop=["."])
    assert "." not in "".join(stopped) and stopped.result["finish"] in ("stop_text", "length")
    forced = "".join(model.generate("x", grammar='root ::= " yes" | " no"'))
    assert forced in (" yes", " no"), forced

    messages = [{"role": "user", "content": "Who are you?"}]
    answer = "".join(model.chat(messages, tokens_max=20, temperature=0))
    assert answer and "".join(model.chat("Who are you?", tokens_max=20, temperature=0)) == answer
    assert model.chat_tokens(messages)

    for _ in model.generate("One morning", tokens_max=200):
        break  # the text is forgotten, and ends
    gc.collect()
    late = model.generate("One morning", tokens_max=200, ignore_eos=True)
    next(late)
    late.stop()
    list(late)
    assert late.result["finish"] == "stopped"

    with model.sequence() as sequence:
        sequence.append("One morning")
        first = sequence.generate(tokens_max=12, temperature=0)
        assert whole == first + sequence.generate(tokens_max=12, temperature=0)
        before = len(sequence.tokens)
        stopped = sequence.generate(tokens_max=60, temperature=0, stop=["."])
        chosen = model.detokenize(sequence.tokens[before:])
        assert chosen.startswith(stopped + ".") and "." not in stopped, (stopped, chosen)
        sequence.truncate(2)
        assert len(sequence.tokens) == 2
        sequence.append([sequence.tokens[-1]])
        assert len(sequence.tokens) == 3

        # What is raised while a text comes, as by Ctrl-C, ends it and comes out.
        def interrupt(*_):
            raise KeyboardInterrupt

        signal.signal(signal.SIGALRM, interrupt)
        begun = len(sequence.tokens)
        for _ in range(20):  # a busy machine may let the whole text pass before the signal
            sequence.truncate(begun)
            signal.setitimer(signal.ITIMER_REAL, 0.02)
            try:
                sequence.generate(tokens_max=240, ignore_eos=True)
                raise AssertionError("the interrupt was lost")
            except KeyboardInterrupt:
                pass
            if len(sequence.tokens) < begun + 240:
                break
        assert begun <= len(sequence.tokens) < begun + 240

    results = {}
    threads = [threading.Thread(target=lambda i=i: results.update(
        {i: "".join(model.generate("One morning", tokens_max=24, temperature=0))}))
        for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(results.values()) == {whole}

    fails(2, "max_tokens", lambda: model.generate("x", tokens_max=0))
    fails(2, "unknown", lambda: model.generate("x", unknown=1))
    fails(2, "vocabulary", lambda: model.detokenize([1 << 30]))
    try:
        model.generate("a\0b")
        raise AssertionError("a zero byte was taken")
    except ValueError:
        pass

model.close()  # again


def out_of_range(work):
    try:
        work()
    except ValueError as error:
        assert "out of range" in str(error), error
        return
    raise AssertionError("a number was cut to the size of its type")


with Model(demo, context=256, threads=1) as model, model.sequence() as sequence:
    out_of_range(lambda: model.detokenize([(1 << 32) + 5]))
    out_of_range(lambda: model.generate([-1 - (1 << 32)]))
    out_of_range(lambda: sequence.append([1 << 31]))
    out_of_range(lambda: sequence.truncate(-1))
    out_of_range(lambda: model.generate("x", tokens_max=(1 << 64) + 5))
    out_of_range(lambda: model.generate("x", top_k=1 << 63))
    out_of_range(lambda: model.generate("x", seed=1 << 63))
out_of_range(lambda: Model(demo, budget_bytes=-1))
out_of_range(lambda: Model(demo, context=(1 << 32) + 256))
out_of_range(lambda: sluice.plan(demo, threads=-1))

fails(2, "NULL", lambda: model.tokenize("x"))
fails(5, "nowhere", lambda: Model("/nowhere.gguf"))
fails(5, "No such file", lambda: Model("/nowhere/" + "é/" * 1000 + "x.gguf"))
try:
    Model(demo + "\0")
    raise AssertionError("a zero byte was taken")
except ValueError:
    pass
fails(4, "budget", lambda: Model(demo, budget_bytes=1))
print(sluice.version())
