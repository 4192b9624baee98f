"""Running a command under scripts/with-memory-limit, with a time limit."""

import dataclasses
import json
import pathlib
import re
import subprocess
import tempfile

import orderly
from engines import ROOT, BenchError, failure

NO_CGROUP_STATUS = 77
TIMED_OUT_STATUS = 124  # of timeout(1)
KILL_AFTER_S = 10
MIB = 1 << 20


class NoCgroup(BenchError):
    """No memory cgroup can be made on this machine."""


@dataclasses.dataclass
class Outcome:
    ended: str       # "ok", "killed" (out of memory), "timeout", "failed"
    message: str     # one line; empty when ok
    exit_status: int
    output: str
    errors: str
    counters: dict   # the report of with-memory-limit


def run_limited(command, limit_bytes, timeout_s, evict=()):
    """Runs a command in a memory cgroup of its own, the files of `evict` out of the page cache.
    Raises NoCgroup when none can be made."""
    with tempfile.TemporaryDirectory(prefix="sluice-limited-") as folder:
        report = pathlib.Path(folder) / "report.json"
        # timeout(1) runs inside, so that the cgroup is cleared away in an orderly way.
        words = [str(ROOT / "scripts/with-memory-limit"), "--report", str(report)]
        for file in evict:
            words += ["--evict", str(file)]
        words += [str(limit_bytes), "timeout", "-k", str(KILL_AFTER_S), str(timeout_s), *command]
        done = orderly.run(words, stderr=subprocess.PIPE)  # which removes its cgroup
        status, output, errors = done.returncode, done.stdout, done.stderr
        if not report.exists():
            said = errors.strip() or f"with-memory-limit: exit status {status}"
            raise NoCgroup(said) if status == NO_CGROUP_STATUS else BenchError(said)
        counters = json.loads(report.read_text())
    ended, message = _judge(command[0], status, output, errors, counters, timeout_s)
    return Outcome(ended, message, status, output, errors, counters)


def _judge(name, status, output, errors, counters, timeout_s):
    if status == 0:
        return "ok", ""
    if counters["oom_kill"]:
        return "killed", f"killed: out of memory within {counters['limit_bytes'] // MIB} MiB"
    if status == TIMED_OUT_STATUS or (status == 137 and not counters["oom_kill"]):
        return "timeout", f"not finished after {timeout_s} s"
    said = failure(pathlib.Path(name).name, status, errors, output)
    return "failed", re.sub(r"/\S*/with-memory-limit-\d+", "with-memory-limit", said)
