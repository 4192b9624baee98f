"""Markdown of all kinds for the page of `sluice serve`: what it looks like, and that it does no
harm."""

import json
import random

# Text, and the HTML that it becomes, without classes and other attributes but addresses.
CASES = [
    ("One\ntwo\n\nthree", "<p>One\ntwo</p><p>three</p>"),
    ("# Title #\n### More", "<h3>Title</h3><h5>More</h5>"),
    ("a *b* **c** ***d*** _e_ ~~f~~", "<p>a <em>b</em> <strong>c</strong> "
     "<em><strong>d</strong></em> <em>e</em> <del>f</del></p>"),
    ("2 * 3 * 4 snake_case_name **open", "<p>2 * 3 * 4 snake_case_name **open</p>"),
    ("**a *b* c**", "<p><strong>a <em>b</em> c</strong></p>"),
    ("`a*b*` ``c`d`` `open", "<p><code>a*b*</code> <code>c`d</code> `open</p>"),
    (r"\*not\* \(x\) \[y\]", r"<p>*not* \(x\) \[y\]</p>"),
    ("- a\n- b\n  - c\n    more\n- d", "<ul><li><p>a</p></li><li><p>b</p><ul><li><p>c\nmore</p>"
     "</li></ul></li><li><p>d</p></li></ul>"),
    ("3. a\n\n4. b\n\ntext", "<ol><li><p>a</p></li><li><p>b</p></li></ol><p>text</p>"),
    ("1. a\n   ```c\n   x;\n\n     y;\n   ```\n2. b", "<ol><li><p>a</p><pre><code>x;\n\n  y;</code>"
     "</pre></li><li><p>b</p></li></ol>"),
    ("In 2020\n1984. was", "<p>In 2020\n1984. was</p>"),
    ("> a\n> - b\n\nc", "<blockquote><p>a</p><ul><li><p>b</p></li></ul></blockquote><p>c</p>"),
    ("a\n\n---\n* * *\nb", "<p>a</p><hr><hr><p>b</p>"),
    ("|a|b|\n|-|:-:|\n|1|**2**|\n\nc", "<table><thead><tr><th>a</th><th>b</th></tr></thead><tbody>"
     "<tr><td>1</td><td><strong>2</strong></td></tr></tbody></table><p>c</p>"),
    ("a | b\nc", "<p>a | b\nc</p>"),
    ("```python\nif a < b:\n\tprint('*x*')\n```\nafter", "<pre><code>if a &lt; b:\n\tprint('*x*')"
     "</code></pre><p>after</p>"),
    ("````\n```\nx\n```\n````", "<pre><code>```\nx\n```</code></pre>"),
    ("```md\n```js\nx\n```\nafter", "<pre><code>```js\nx</code></pre><p>after</p>"),
    ("```\nunclosed\n\n- x", "<pre><code>unclosed\n\n- x</code></pre>"),
    ("~~~\n```\n~~~", "<pre><code>```</code></pre>"),
    ("[a *b*](https://x.org/c_(d)) <https://y.org>, https://z.org/e.",
     '<p><a href="https://x.org/c_(d)">a <em>b</em></a> &lt;<a href="https://y.org">https://y.org'
     '</a>&gt;, <a href="https://z.org/e">https://z.org/e</a>.</p>'),
    ("[https://x.org](https://x.org) [m](mailto:a@b.org)",
     '<p><a href="https://x.org">https://x.org</a> <a href="mailto:a@b.org">m</a></p>'),
    ("![picture](https://x.org/p.png)", '<p><a href="https://x.org/p.png">picture</a></p>'),
    ("a\r\nb\r\n", "<p>a\nb</p>"),
]

SAMPLE = """Give it a file and a *budget*:

```sh
sluice serve model.gguf --budget 4GiB
```

1. Wait until it is **ready**.
2. Open the page, or use the API at `/v1`.

| option | meaning |
|---|---|
| `--port` | where it listens |
"""

# Nothing of these may become anything but text.
HARMLESS = [
    "<script>window.harm = 1</script>",
    "<img src=x onerror='window.harm = 1'>",
    "<iframe src=javascript:parent.harm=1></iframe>",
    "[a](javascript:window.harm=1)",
    "[a](JaVaScRiPt:window.harm=1)",
    "[a](java\tscript:window.harm=1)",
    "[a](&#106;avascript:window.harm=1)",
    "[a](data:text/html,<script>window.harm=1</script>)",
    "[a](vbscript:harm) [b](file:///etc/passwd) [c](//x.org) [d](/slots)",
    "[a](<javascript:window.harm=1>)",
    "`<script>window.harm = 1</script>`",
    "# <svg onload='window.harm = 1'>",
    "|<img src=x onerror='window.harm = 1'>|b|\n|-|-|\n|<b onclick='harm=1'>|c|",
    "```\"><script>window.harm=1</script>\nx\n```",
    "```\n</code></pre><script>window.harm=1</script>",
    "<style>body { display: none }</style>",
    "<a href='https://x.org' onmouseover='window.harm=1'>b</a>",
]

# What a model may make the page show, with the attributes that these have.
ALLOWED = {
    **dict.fromkeys("p h3 h4 h5 h6 ul li blockquote hr code strong em del table thead tbody tr th "
                    "td span br".split(), []),
    "ol": ["start"], "pre": ["tabindex"], "div": ["class", "tabindex"],
    "a": ["href", "target", "rel"], "button": ["type", "class"],
}

SCRIPT = """
window.render = (pieces) => {
  const box = document.createElement("div");
  const markdown = new Markdown(box);
  for (const piece of pieces) markdown.write(piece);
  markdown.end();
  return box;
};
window.plain_html = (box) => {
  for (const bar of box.querySelectorAll(".bar")) bar.remove();
  for (const one of box.querySelectorAll("div")) one.replaceWith(...one.childNodes);
  for (const one of box.querySelectorAll("*")) {
    for (const name of one.getAttributeNames()) if (name !== "href") one.removeAttribute(name);
  }
  return box.innerHTML;
};
window.harm_in = (box, allowed) => {
  for (const one of box.querySelectorAll("*")) {
    const names = allowed[one.localName];
    if (!names) return "element " + one.localName;
    for (const name of one.getAttributeNames()) {
      if (!names.includes(name)) return "attribute " + name + " of " + one.localName;
    }
    if (one.localName !== "a") continue;
    if (!["http:", "https:", "mailto:"].includes(one.protocol)) return one.href;
    if (!/noopener/.test(one.rel)) return "a link without noopener";
  }
  return "";
};
// How many nodes come into the document when a text comes in pieces of a few characters.
window.work_for = async (text) => {
  const box = document.createElement("div");
  let nodes = 0;
  const count = (records) => {
    for (const record of records) nodes += record.addedNodes.length;
  };
  const observer = new MutationObserver(count);
  observer.observe(box, { childList: true, subtree: true });
  const markdown = new Markdown(box);
  for (let at = 0; at < text.length; at += 40) {
    markdown.write(text.slice(at, at + 40));
    count(observer.takeRecords());
  }
  markdown.end();
  count(observer.takeRecords());
  return nodes;
};
0
"""

# Of these, random Markdown is made.
SCRAPS = ["*", "**", "_", "~~", "`", "```", "````js", "~~~", "\n", "\n", "\n\n", "- ", "1. ", "7) ",
          "> ", ">> ", "# ", "---", "|", "|-|-|", "|a|b|", "[", "](", ")", "![", "https://x.org/",
          "](javascript:x)", "<b>", "<script>", " ", "  ", "    ", "\t", "\\", "word", "ä", "😀",
          "2", ".", "(", "\r\n", "\"", "&lt;", "x" * 50, "y" * 3000]


def random_text(source):
    return "".join(source.choice(SCRAPS) for _ in range(source.randint(1, 60)))


def random_pieces(source, text):
    pieces = []
    while text:
        size = source.choice([1, 2, 3, 10, 100, 5000])
        pieces.append(text[:size])
        text = text[size:]
    return pieces


def harm(chat, pieces):
    return chat.run(f"harm_in(render({json.dumps(pieces)}), {json.dumps(ALLOWED)})")


def test_hostile(chat, check):
    harms = [found for found in (harm(chat, [text]) for text in HARMLESS) if found]
    check("no text of the model becomes HTML, or a link to a script", not harms)
    chat.answer_with(*HARMLESS)
    chat.ask("Do harm")
    chat.run("document.querySelectorAll('.text a, .text button').forEach((one) => {"
             "one.target = ''; if (one.localName === 'button') one.click(); }); 0")
    check("nor in an answer", chat.run("window.harm === undefined")
          and "<script>window.harm" in chat.run(
              "document.querySelector('.message.assistant .text').textContent"))
    million = 1 << 20
    floods = {
        "asterisks": "*", "asterisks and letters": "*a ", "backticks": "` ", "brackets": "[",
        "links": "[a](", "quotes": ">", "deep lists": "- ", "cells": "|", "lines of lists": "- a\n",
        "closed emphasis": "*a* ", "underscores": "_a_ ", "backslashes": "\\", "spaces": " ",
        "hashes": "# #", "addresses": "https://", "deeper quotes": "> > \n",
        "fences": "```\n", "tables": "|a|\n|-|\n", "growing ticks": None,
    }
    for name, scrap in floods.items():
        text = (scrap * (million // len(scrap)) if scrap else
                " ".join("`" * n for n in range(1, 1400)))
        chat.run(f"window.flood = {json.dumps(text[:4096])}.repeat({len(text) // 4096})"
                 if scrap else f"window.flood = {json.dumps(text)}; 0")
        found = chat.run(f"harm_in(window.flooded = render([flood]), {json.dumps(ALLOWED)})")
        depth = chat.run("(() => { let most = 0; for (const one of flooded.querySelectorAll('*')) {"
                         "if (one.firstElementChild) continue; let n = 0;"
                         "for (let up = one; up; up = up.parentElement) ++n;"
                         "most = Math.max(most, n); } return most; })()")
        check(f"a megabyte of {name} is shown", found == "" and depth < 100)
    chat.run("window.flood = window.flooded = null")
    chat.answer_with("Not a line: ", "*" * million)
    chat.ask("Asterisks")
    check("no character of it is lost", chat.run(
        "[...document.querySelectorAll('.message .text')].at(-1).textContent.length")
          == million + 12)


def test_random(chat, check, seed):
    source = random.Random(seed)
    wrong = []
    for _ in range(400):
        text = random_text(source)
        pieces = random_pieces(source, text)
        whole, parts = (chat.run(f"render({json.dumps(made)}).innerHTML")
                        for made in ([text], pieces))
        if whole != parts or harm(chat, pieces):
            wrong.append(pieces)
    check(f"in pieces and whole, a text looks the same (seed {seed})", not wrong)
    if wrong:
        print(json.dumps(min(wrong, key=lambda pieces: len("".join(pieces)))))


def test_work(chat, check):
    texts = {
        "paragraphs": "Some *words* and `code`.\n\n", "one paragraph": "Some *words* here. ",
        "a list": "- an **item**\n", "code": "let a = 1;\n", "a table": "|a|b|\n",
        "quotes": "> a\n",
    }
    for name, scrap in texts.items():
        begin = {"code": "```\n", "a table": "|a|b|\n|-|-|\n"}.get(name, "")
        few, many = (chat.run(f"work_for({json.dumps(begin + scrap * (size // len(scrap)))})")
                     for size in (20000, 80000))
        check(f"the work for {name} grows with the length alone", many < 6 * few)


def test(chat, check, seed):
    chat.click("#new")
    chat.run(SCRIPT)
    for text, html in CASES:
        found = chat.run(f"plain_html(render([{json.dumps(text)}]))")
        if found != html:
            print(f"{text!r}\n  gives  {found}\n  wanted {html}")
        check(f"Markdown: {text[:40]!r}", found == html)
    test_hostile(chat, check)
    test_random(chat, check, seed)
    test_work(chat, check)
    chat.answer_really()
