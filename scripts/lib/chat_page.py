"""The page of `sluice serve` in a browser, as a test uses it."""

import json

# What the page asks the model is answered by the function `stand_in`, where there is one.
STAND_IN = """
window.real_fetch = window.real_fetch || window.fetch;
window.asked = [];
window.fetch = (place, how) => {
  if (place !== "v1/chat/completions") return real_fetch(place, how);
  asked.push(JSON.parse(how.body));
  return window.stand_in ? stand_in(how) : real_fetch(place, how);
};
window.stream_of = (events, how, ends) => new Response(new ReadableStream({
  async start(stream) {
    const coder = new TextEncoder();
    how.signal.addEventListener("abort", () => stream.error(new DOMException("", "AbortError")));
    for (const event of events) {
      stream.enqueue(coder.encode("data: " + JSON.stringify(event) + "\\n\\n"));
      await new Promise((next) => setTimeout(next));
      if (how.signal.aborted) return;
    }
    if (ends) stream.close();
  }
}));
0
"""


def piece(text, finish=None):
    return {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": finish}]}


class ChatPage:
    def __init__(self, page, address, key):
        self.page, self.address, self.key = page, address, key
        self.run, self.wait_for = page.run, page.wait_for

    def open(self):
        """Loads the page, or loads it again."""
        self.page.call("Page.navigate", url=self.address)
        self.run("window.is_old = true")
        self.page.call("Page.reload")
        self.page.wait_for("!window.is_old && document.readyState === 'complete'")
        self.run(STAND_IN)

    def give_key(self):
        self.run(f"const key = document.getElementById('key'); key.value = {json.dumps(self.key)};"
                 "key.dispatchEvent(new Event('change'))")
        self.wait_for("document.querySelectorAll('#plan tr').length > 5")

    def set(self, name, value):
        self.run(f"document.getElementById('{name}').value = {json.dumps(value)}; 0")

    def send(self, text):
        self.set("input", text)
        self.run("document.getElementById('form').requestSubmit()")

    def wait_until_idle(self):
        self.wait_for("!document.getElementById('send').hidden")

    def ask(self, text):
        self.send(text)
        self.wait_until_idle()

    def answer_with(self, *pieces, finish="stop", ends=True, events=()):
        """From now on each request is answered with these pieces; `ends`: and then ends."""
        told = list(events) + [piece(text) for text in pieces]
        if ends:
            told.append(piece("", finish))
        self.answer_by(f"(how) => stream_of({json.dumps(told)}, how, {json.dumps(ends)})")

    def answer_by(self, function):
        self.run(f"window.stand_in = {function}; 0")

    def answer_really(self):
        self.run("window.stand_in = null")

    def click(self, selector):
        self.run(f"document.querySelector({json.dumps(selector)}).click()")

    def click_named(self, name, selector="button"):
        """The last button whose text or label begins so."""
        self.run(f"""[...document.querySelectorAll({json.dumps(selector)})].findLast((one) =>
            (one.getAttribute("aria-label") || one.textContent).startsWith({json.dumps(name)}))
            .click()""")

    def press(self, key, code=0, text=""):
        for kind in ("keyDown", "keyUp"):
            self.page.call("Input.dispatchKeyEvent", type=kind, key=key, code=key,
                           windowsVirtualKeyCode=code, text=text if kind == "keyDown" else "")

    def texts(self):
        """What the messages say, the person's and the model's."""
        return self.run("[...document.querySelectorAll('.message .text')].map("
                        "(one) => one.innerText)")

    def titles(self):
        return self.run("[...document.querySelectorAll('nav .title')].map("
                        "(one) => one.textContent)")

    def text_of(self, name):
        return self.run(f"document.getElementById('{name}').textContent")

    def box(self):
        return self.run("document.getElementById('input').value")

    def asked(self):
        """The messages of the last request for an answer."""
        return [(one["role"], one["content"]) for one in self.run("asked.at(-1).messages")]
