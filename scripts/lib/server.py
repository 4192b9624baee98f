"""Starting `sluice serve` for scripts that talk to it, on a free port of this machine alone."""

import http.client
import json
import re
import signal
import subprocess
import threading

import orderly  # noqa: F401


class ServerError(Exception):
    pass


class Server:
    """A server that is ready. Use it in a `with` statement. `prefix` stands before its command."""

    def __init__(self, sluice, model, options=(), port=0, prefix=()):
        self.log = []
        self.process = subprocess.Popen(
            [*prefix, sluice, "serve", model, "--port", str(port), *options],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.is_ready = threading.Event()
        self.port = None
        self.reader = threading.Thread(target=self._read_log, daemon=True)
        self.reader.start()
        try:
            if not self.is_ready.wait(300) or self.port is None:
                raise ServerError("the server did not become ready:\n" + "\n".join(self.log))
        except BaseException:  # the script is told to end, too
            self.stop()
            raise

    def _read_log(self):
        for line in self.process.stderr:
            self.log.append(line.rstrip())
            found = re.search(r"listening on .*http://127\.0\.0\.1:(\d+)", line)
            if found:
                self.port = int(found.group(1))
            if line.rstrip() == "sluice: ready":
                self.is_ready.set()
        self.is_ready.set()  # it has ended

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        """Ends it as a user would, and returns its status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
        return self.process.wait()

    def kill(self):
        self.process.kill()
        self.process.wait()

    def ask(self, method, path, body=None, timeout=120):
        """The status and the body of an answer; JSON where it is JSON."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            data = None if body is None else json.dumps(body).encode()
            connection.request(method, path, data)
            answer = connection.getresponse()
            text = answer.read()
            if answer.getheader("Content-Type") == "application/json":
                return answer.status, json.loads(text)
            return answer.status, text.decode(errors="replace")
        finally:
            connection.close()

    def memory_bytes(self):
        """What the process holds of its own (RssAnon)."""
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as file:
            for line in file:
                if line.startswith("RssAnon:"):
                    return int(line.split()[1]) * 1024
        raise ServerError("no RssAnon")

    def descriptors(self):
        import os
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))
