"""A headless Chromium, spoken to over its debugging protocol with nothing but Python's library."""

import base64
import json
import os
import pathlib
import re
import shutil
import socket
import struct
import subprocess
import time


class BrowserError(Exception):
    pass


class WebSocket:
    """As much of RFC 6455 as the debugging protocol needs: texts, from a client."""

    def __init__(self, address):
        host, port, path = re.match(r"ws://([^:/]+):(\d+)(/.*)", address).groups()
        self.socket = socket.create_connection((host, int(port)), timeout=60)
        key = base64.b64encode(os.urandom(16)).decode()
        self.socket.sendall((f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nUpgrade: websocket\r\n"
                             f"Connection: Upgrade\r\nSec-WebSocket-Key: {key}\r\n"
                             "Sec-WebSocket-Version: 13\r\n\r\n").encode())
        self.waiting = b""
        while b"\r\n\r\n" not in self.waiting:
            self._receive()
        head, self.waiting = self.waiting.split(b"\r\n\r\n", 1)
        if b" 101 " not in head:
            raise BrowserError(head.decode())

    def _receive(self):
        piece = self.socket.recv(1 << 16)
        if not piece:
            raise BrowserError("the browser has gone")
        self.waiting += piece

    def _take(self, size):
        while len(self.waiting) < size:
            self._receive()
        taken, self.waiting = self.waiting[:size], self.waiting[size:]
        return taken

    def send(self, text):
        data = text.encode()
        size = (bytes([0x80 | len(data)]) if len(data) < 126 else
                b"\xfe" + struct.pack(">H", len(data)) if len(data) < 1 << 16 else
                b"\xff" + struct.pack(">Q", len(data)))
        mask = os.urandom(4)
        masked = bytes(byte ^ mask[i % 4] for i, byte in enumerate(data))
        self.socket.sendall(b"\x81" + size + mask + masked)

    def receive(self):
        """The next whole text."""
        whole = b""
        while True:
            first, second = self._take(2)
            size = second & 0x7f
            if size == 126:
                size, = struct.unpack(">H", self._take(2))
            elif size == 127:
                size, = struct.unpack(">Q", self._take(8))
            data = self._take(size)
            if first & 0x0f in (0, 1):
                whole += data
                if first & 0x80:
                    return whole.decode()


def find_chromium():
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if shutil.which(name):
            return name
    return None


class Page:
    """A page of a browser of its own. Use it in a `with` statement."""

    def __init__(self, folder):
        self.process = subprocess.Popen(
            [find_chromium(), "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run",
             "--disable-background-networking", "--remote-debugging-port=0",
             f"--user-data-dir={folder}", "about:blank"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            self._connect(pathlib.Path(folder) / "DevToolsActivePort")
        except BaseException:
            self.__exit__()
            raise

    def _connect(self, noted):
        for _ in range(1200):
            if noted.exists() and noted.read_text().count("\n") >= 1:
                break
            time.sleep(0.1)
        port, path = noted.read_text().split("\n")[:2]
        self.events, self.next_id = [], 0
        self.session = None
        self.socket = WebSocket(f"ws://127.0.0.1:{port}{path}")
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target,
                                 flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def call(self, method, **parameters):
        self.next_id += 1
        message = {"id": self.next_id, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        self.socket.send(json.dumps(message))
        while True:
            answer = json.loads(self.socket.receive())
            if answer.get("id") == self.next_id:
                if "error" in answer:
                    raise BrowserError(f"{method}: {answer['error']}")
                return answer["result"]
            if "method" in answer:
                self.events.append(answer)

    def run(self, expression):
        """The value of an expression in the page."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True,
                           awaitPromise=True)
        if "exceptionDetails" in result:
            raise BrowserError(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def wait_for(self, expression, seconds=60):
        deadline = time.monotonic() + seconds
        while not self.run(expression):
            if time.monotonic() > deadline:
                raise BrowserError(f"never true: {expression}; the page says: "
                                   + self.run("document.body.innerText")[:500])
            time.sleep(0.1)

    def events_of(self, method):
        return [event["params"] for event in self.events if event["method"] == method]
