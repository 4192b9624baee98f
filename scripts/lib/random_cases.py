"""Random cases of a test program, on all CPUs: one process on each, with seeds of its own."""

import collections
import os
import subprocess

import orderly


def start(program, test, cpu, environment):
    return subprocess.Popen(
        [program, test], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env={**os.environ, **{name: str(value) for name, value in environment.items()}},
        preexec_fn=lambda: os.sched_setaffinity(0, {cpu}))


def counts_of(output):
    """The lines that begin with a number, as a dictionary."""
    counts = collections.Counter()
    for line in output.splitlines():
        number, _, what = line.strip().partition(" ")
        if number.isdigit():
            counts[what] += int(number)
    return counts


def run_all(program, test, cpus, environments):
    """Runs a process on each of the first CPUs, each in its environment; prints the output of those
    that fail, and what all have counted. Returns how many have failed."""
    running = [start(program, test, cpu, environment)
               for cpu, environment in zip(cpus, environments)]
    total, failed = collections.Counter(), 0
    try:
        for process in running:
            output, _ = process.communicate()
            total += counts_of(output)
            if process.returncode:
                failed += 1
                print(output)
    finally:
        for process in running:
            if process.poll() is None:
                orderly.end(process)
    for what, count in total.items():
        print(f"{count:12,} {what}")
    return failed
