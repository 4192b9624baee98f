"""Ending in an orderly way. A script that imports this and is told to end (SIGTERM: a time limit, a
batch system, a service) clears away the folders and processes that it has made, as it does after
Ctrl-C."""

import signal
import subprocess
import sys

PATIENCE_S = 60

signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


def end(process, is_told=False):
    """Ends a process, and returns what it has printed. It is told to end before it is killed, since
    it may be a script that has made folders and processes. `is_told`: it was told already, as a
    terminal tells all of Ctrl-C."""
    steps = [(process.terminate, PATIENCE_S), (process.kill, None)]
    if is_told:
        steps.insert(0, (lambda: None, PATIENCE_S / 6))
    for step, seconds in steps:
        step()
        try:
            return process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            continue
    raise AssertionError("a process that was killed has not ended")


def kill(process):
    """Ends a process that need not be told, or cannot: it may be stopped."""
    if process.poll() is None:
        process.kill()
        process.communicate()


def run(command, timeout=None, **options):
    """As subprocess.run(), with the output as text and no input; but a command whose time is over,
    or for which nobody waits any more, ends as in end()."""
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
                          errors="replace", **options) as process:
        try:
            output, errors = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired as late:
            late.output, late.stderr = end(process)
            raise
        except BaseException as reason:
            end(process, isinstance(reason, KeyboardInterrupt))
            raise
    return subprocess.CompletedProcess(command, process.returncode, output, errors)
