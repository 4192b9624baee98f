"""Random cases of a test program, on all CPUs: one process on each, with seeds of its own."""

import argparse
import collections
import os
import pathlib
import random
import subprocess
import sys
import time

import orderly

BUILD = pathlib.Path(__file__).resolve().parent.parent.parent / "build/release/tests"
SEEDS_APART = 1 << 32  # more than a process has cases


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


def shares_of(count, processes):
    """The part of each process; there may be more processes than cases."""
    return [count // processes + (i < count % processes) for i in range(processes)]


def parse_arguments(doc, program, name, kind, default):
    parser = argparse.ArgumentParser(description=doc,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(name, type=kind, default=default, nargs=None if default is None else "?")
    parser.add_argument("--seed", type=int, help="repeats the cases of a run on as many CPUs")
    parser.add_argument("--program", default=str(BUILD / program),
                        help="the test (default: release build)")
    args = parser.parse_args()
    if getattr(args, name) <= 0:
        parser.error(f"{name} must be more than 0")
    if not pathlib.Path(args.program).is_file():
        parser.error(f"{args.program}: not built; run scripts/test")
    if args.seed is None:
        args.seed = random.SystemRandom().randrange(1 << 32)
    return args


def run_script(doc, *, program, test, name, variable, shares, kind=int, default=None, good):
    """A script that runs the random cases of a test: its argument `name`, a `kind`, says how many
    there are or for how long; `shares` makes of it and the number of CPUs what `variable` tells
    each process. Prints `good` where no process has failed, and ends."""
    args = parse_arguments(doc, program, name, kind, default)
    cpus = sorted(os.sched_getaffinity(0))
    begin = time.monotonic()
    environments = [{"SLUICE_TEST_SEED": args.seed + i * SEEDS_APART, variable: share}
                    for i, share in enumerate(shares(getattr(args, name), len(cpus))) if share]
    try:
        failed = run_all(args.program, test, cpus, environments)
    except KeyboardInterrupt:
        sys.exit(130)
    print(f"--seed {args.seed}, {time.monotonic() - begin:.0f} s: "
          + (f"{failed} of {len(environments)} processes failed" if failed else good))
    sys.exit(1 if failed else 0)
