"""Imported for what it does: a script that is told to end (SIGTERM: a time limit, a batch system, a
service) clears away the folders and processes that it has made, as it does after Ctrl-C."""

import signal
import sys

signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
