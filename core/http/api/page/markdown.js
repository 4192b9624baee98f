// Markdown as models write it, made into nodes of the document. Nothing of the text becomes HTML:
// it ends in text nodes, in the language of a block of code, and in the addresses of links to the
// web and to mail.
//
// The text may come in pieces. A line that is complete is taken for good. The last line, which is
// still being written, is shown as far as it is there, and taken back before the next piece. A
// paragraph is drawn again when it grows. Lines and paragraphs longer than `part_max` are taken in
// parts, so the work for a piece is bounded, and that for a text grows with its length alone.

const part_max = 4000;    // characters
const nesting_max = 12;   // lists and quotes in each other
const emphasis_max = 16;  // marks of emphasis and links that are open at a time

function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

function button(label, action, kind = "plain") {
  const made = element("button", { type: "button", className: kind, textContent: label });
  made.addEventListener("click", () => action(made));
  return made;
}

// Browsers offer the clipboard only to pages from this machine or with TLS; the old way is for the
// others.
async function copy(text, from) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = element("textarea", { value: text, className: "unseen", readOnly: true });
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
    from.focus();
  }
  from.textContent = "Copied";
  setTimeout(() => { from.textContent = "Copy"; }, 1500);
}

// The nodes of a text without blocks: emphasis, code and links.
class Inline {
  constructor(text) {
    this.text = text;
    this.parts = [];  // nodes and strings
    this.open = [];   // what may still be closed: {mark, at: its place in parts, count}
    this.unclosed = new Set();  // sizes of runs of ` that are not closed further on
  }

  nodes() {
    const special = /[\\`[\]]|!\[|\*+|_+|~+|https?:\/\//gi;
    let at = 0;
    for (;;) {
      special.lastIndex = at;
      const found = special.exec(this.text);
      const end = found ? found.index : this.text.length;
      if (end > at) this.parts.push(this.text.slice(at, end));
      if (!found) return this.parts;
      at = this.take(found[0], end);
    }
  }

  // Takes what stands at a place, and returns the end of it.
  take(what, at) {
    switch (what[0]) {
      case "\\": return this.take_escape(at);
      case "`": return this.take_code(at);
      case "!":
      case "[": return this.take_bracket(what, at);
      case "]": return this.take_link(at);
      case "h":
      case "H": return this.take_address(at);
      default: return this.take_run(what, at);
    }
  }

  // Brackets keep their backslash, which in a model's text mostly means a formula.
  take_escape(at) {
    const next = this.text[at + 1] || "";
    if (/[\\`*_~<>#+\-.!|{}\n]/.test(next)) {
      this.parts.push(next);
    } else {
      this.parts.push("\\" + next);
    }
    return at + 1 + next.length;
  }

  take_code(at) {
    const runs = /`+/g;
    runs.lastIndex = at;
    const size = runs.exec(this.text)[0].length, begin = at + size;
    if (!this.unclosed.has(size)) {
      for (let run; (run = runs.exec(this.text));) {
        if (run[0].length !== size) continue;
        const code = this.text.slice(begin, run.index).replaceAll("\n", " ");
        const is_padded = code.startsWith(" ") && code.endsWith(" ") && code.trim() !== "";
        this.parts.push(element("code", { textContent: is_padded ? code.slice(1, -1) : code }));
        return runs.lastIndex;
      }
      this.unclosed.add(size);
    }
    this.parts.push(this.text.slice(at, begin));
    return begin;
  }

  take_bracket(what, at) {
    this.begin("[", what, 1);
    return at + what.length;
  }

  begin(mark, text, count) {
    this.parts.push(text);
    if (this.open.length < emphasis_max) {
      this.open.push({ mark, at: this.parts.length - 1, count });
    }
  }

  // Puts what stands after part `at` into an element. What is open in there stays text.
  wrap(place, made) {
    const { at } = this.open[place];
    this.open.length = place + 1;
    made.append(...this.parts.splice(at + 1));
    this.parts.push(made);
    return made;
  }

  take_link(at) {
    const place = this.open.findLastIndex((one) => one.mark === "[");
    const target = /\(\s*<?([^\s()<>]*(?:\([^\s()<>]*\)[^\s()<>]*)*)>?(?:\s+"[^"]*")?\s*\)/y;
    target.lastIndex = at + 1;
    const found = place < 0 ? null : target.exec(this.text);
    if (!found || !/^(https?:\/\/|mailto:)[^\s]/i.test(found[1])) {
      if (place >= 0) this.open.splice(place, 1);
      this.parts.push("]");
      return at + 1;
    }
    const link = this.wrap(place, this.link_to(found[1]));
    for (const inner of link.querySelectorAll("a")) inner.replaceWith(...inner.childNodes);
    this.parts[this.open.pop().at] = "";
    return target.lastIndex;
  }

  link_to(address) {
    return element("a", { href: address, target: "_blank", rel: "noopener noreferrer" });
  }

  take_address(at) {
    const address = /[^\s<>"'`[\]*]*/y;
    address.lastIndex = at;
    let [found] = address.exec(this.text);
    const belongs = () => {  // its last character, which may be that of the sentence
      const last = found.at(-1);
      return last === ")" ? found.includes("(") : !".,:;!?_~".includes(last);
    };
    while (found && !belongs()) found = found.slice(0, -1);
    if (!/\/\/./.test(found) || /\w/.test(this.text[at - 1] || "")) {
      const text = this.text.slice(at, at + 4);
      this.parts.push(text);
      return at + text.length;
    }
    const link = this.link_to(found);
    link.textContent = found;
    this.parts.push(link);
    return at + found.length;
  }

  // Runs of * and _ of up to three, and ~~. Longer ones are text.
  take_run(run, at) {
    const end = at + run.length, mark = run[0];
    if (run.length > 3 || (mark === "~" && run.length !== 2)) {
      this.parts.push(run);
      return end;
    }
    const before = this.text[at - 1] || " ", after = this.text[end] || " ";
    const is_space = (c) => /\s/.test(c), is_sign = (c) => /[\p{P}\p{S}]/u.test(c);
    let opens = !is_space(after) && (!is_sign(after) || is_space(before) || is_sign(before));
    let closes = !is_space(before) && (!is_sign(before) || is_space(after) || is_sign(after));
    if (mark === "_") {
      const is_inside = opens && closes;
      opens = opens && (!is_inside || is_sign(before));
      closes = closes && (!is_inside || is_sign(after));
    }
    let count = run.length;
    while (closes && count > 0) {
      const place = this.open.findLastIndex((one) => one.mark === mark);
      if (place < 0) break;
      count -= this.close(place, count);
    }
    if (count === 0) return end;
    if (opens) {
      this.begin(mark, mark.repeat(count), count);
    } else {
      this.parts.push(mark.repeat(count));
    }
    return end;
  }

  // Returns how many of the marks it took.
  close(place, count) {
    const opener = this.open[place];
    const used = Math.min(count, opener.count, 2);
    this.wrap(place, element(opener.mark === "~" ? "del" : used === 2 ? "strong" : "em"));
    opener.count -= used;
    this.parts[opener.at] = opener.mark.repeat(opener.count);
    if (opener.count === 0) this.open.pop();
    return used;
  }
}

// How far a line is indented; a tab counts for four.
function indent_of(line) {
  const [space] = /^[ \t]*/.exec(line);
  return space.length + 3 * (space.split("\t").length - 1);
}

function without_indent(line, columns) {
  let at = 0;
  for (; columns > 0 && (line[at] === " " || line[at] === "\t"); ++at) {
    columns -= line[at] === "\t" ? 4 : 1;
  }
  return line.slice(at);
}

function is_rule(line) {
  return /^[ \t]*([-*_])(?:[ \t]*\1){2,}[ \t]*$/.test(line);
}

// The marker of an item of a list, or null.
function item_of(line) {
  const found = /^([ \t]*)([-*+]|(\d{1,9})[.)])(?:([ \t]+)|$)/.exec(line);
  if (!found || is_rule(line)) return null;
  const [whole, space, marker, number, gap = " "] = found;
  const indent = indent_of(space);
  const width = gap.length > 4 ? 1 : gap.length;
  return {
    number: number === undefined ? null : Number(number),
    need: indent + 2,  // of what belongs to it; models often indent less than the text of it
    indent: indent + marker.length + width,
    rest: gap.length > 4 ? line.slice(space.length + marker.length + 1) : line.slice(whole.length),
  };
}

function cells_of(line) {
  const row = line.trim().replace(/^\|/, "");
  const cells = row.split(/(?<!\\)\|/).map((cell) => cell.trim());
  if (cells.length > 1 && cells.at(-1) === "") cells.pop();
  return cells;
}

function is_table_rule(line) {
  return line.includes("-") && line.includes("|") &&
    cells_of(line).every((cell) => /^:?-+:?$/.test(cell));
}

class Markdown {
  // `box`: an empty element for the nodes.
  constructor(box) {
    this.box = box;
    this.containers = [];    // the lists' items and quotes that are open, from the outside
    this.leaf = null;        // the paragraph, code or table that is open
    this.rest = "";          // of the text: the line that is being written
    this.is_inside = false;  // a part of that line was taken
    this.before = null;      // the state before the rest was shown; null: it is not shown
  }

  write(text) {
    this.take_back();
    const all = this.rest + text;
    let from = 0;
    for (;;) {
      const newline = all.indexOf("\n", from);
      const size = (newline < 0 ? all.length : newline) - from;
      if (size > part_max) {
        const is_split = /[\ud800-\udbff]/.test(all[from + part_max - 1]);
        const end = from + part_max - (is_split ? 1 : 0);
        this.take(all.slice(from, end));
        this.is_inside = true;
        from = end;
      } else if (newline >= 0) {
        this.take(all.slice(from, newline));
        this.is_inside = false;
        from = newline + 1;
      } else {
        break;
      }
    }
    this.rest = all.slice(from);
    this.show_rest();
    this.draw();
  }

  // No more text comes.
  end() {
    this.write(this.rest ? "\n" : "");
  }

  show_rest() {
    if (!this.rest) return;
    this.draw_code();
    this.before = { leaf: this.leaf && { ...this.leaf }, containers: [...this.containers],
                    made: [] };
    this.take(this.rest);
  }
  take_back() {
    if (!this.before) return;
    for (const node of this.before.made) node.remove();
    ({ leaf: this.leaf, containers: this.containers } = this.before);
    this.before = null;
  }

  append(parent, node) {
    parent.append(node);
    if (this.before) this.before.made.push(node);
    return node;
  }
  parent() {
    return this.containers.length ? this.containers.at(-1).node : this.box;
  }

  // A line, or a part of it.
  take(text) {
    if (!this.is_inside) return this.take_line(text.endsWith("\r") ? text.slice(0, -1) : text);
    if (this.leaf && this.leaf.kind !== "table") {
      this.add_part(text);
    } else {
      this.close_to(this.containers.length);
      this.add_to_paragraph(text);
    }
  }

  take_line(line) {
    let { rest, depth } = this.enter(line);
    if (this.leaf && this.leaf.kind === "code") {
      if (depth === this.containers.length) return this.take_code_line(rest);
      this.close_to(depth);  // the quote that it stands in has ended
    }
    if (!rest.trim()) {
      this.close_leaf();
      while (this.containers.slice(depth).some((one) => one.is_quote)) this.containers.pop();
      return;
    }
    ({ rest, depth } = this.open_containers(rest, depth));
    if (this.take_block(rest, depth)) return;
    if (this.leaf && this.leaf.kind === "paragraph") return this.go_on(rest, depth);
    if (this.leaf && depth === this.containers.length && rest.includes("|")) {
      return this.add_row(this.leaf.rows, "td", rest);
    }
    this.close_to(depth);
    this.add_to_paragraph(rest.trimStart());
  }

  // Goes through the containers that a line is in: what is left of it, and how many they are.
  enter(line) {
    let rest = line, depth = 0;
    for (const container of this.containers) {
      if (container.is_quote) {
        const found = /^[ \t]*> ?/.exec(rest);
        if (!found) break;
        rest = rest.slice(found[0].length);
      } else {
        const is_code = this.leaf && this.leaf.kind === "code";
        if (rest.trim() && !is_code && indent_of(rest) < container.need) break;
        rest = without_indent(rest, container.indent);
      }
      ++depth;
    }
    return { rest, depth };
  }

  open_containers(rest, depth) {
    for (; depth < nesting_max; ++depth) {
      const quote = /^[ \t]*> ?/.exec(rest), item = item_of(rest);
      if (!quote && !item) break;
      const interrupts = this.leaf && this.leaf.kind === "paragraph" &&
        depth === this.containers.length;
      if (interrupts && item && (!item.rest.trim() || (item.number ?? 1) !== 1)) break;
      this.close_to(depth);
      if (quote) {
        const node = this.append(this.parent(), element("blockquote"));
        this.containers.push({ node, is_quote: true });
        rest = rest.slice(quote[0].length);
      } else {
        const node = this.append(this.list_for(item), element("li"));
        this.containers.push({ node, is_quote: false, need: item.need, indent: item.indent });
        rest = item.rest;
      }
    }
    return { rest, depth };
  }

  list_for(item) {
    const tag = item.number === null ? "UL" : "OL", parent = this.parent();
    const last = parent.lastElementChild;
    if (last && last.tagName === tag) return last;
    const list = element(tag);
    if ((item.number ?? 1) !== 1) list.start = item.number;
    return this.append(parent, list);
  }

  // A block that is known by its first line. Returns whether it is one.
  take_block(line, depth) {
    const fence = /^([ \t]*)(`{3,}(?=[^`]*$)|~{3,})[ \t]*([^\s`]*)/.exec(line);
    if (fence) {
      this.close_to(depth);
      this.begin_code(fence[2], fence[3], indent_of(fence[1]));
      return true;
    }
    const heading = /^[ \t]*(#{1,6})(?:[ \t]+|$)/.exec(line);
    if (heading) {
      this.close_to(depth);
      const made = element("h" + Math.min(6, heading[1].length + 2));  // under those of the page
      made.append(...new Inline(without_closing_marks(line.slice(heading[0].length))).nodes());
      this.append(this.parent(), made);
      return true;
    }
    if (is_rule(line)) {
      this.close_to(depth);
      this.append(this.parent(), element("hr"));
      return true;
    }
    return false;
  }

  begin_code(fence, language, indent) {
    const code = element("code");
    const bar = element("div", { className: "bar" }, element("span", { textContent: language }),
      button("Copy", (from) => copy(code.textContent, from)));
    this.append(this.parent(),
      element("div", { className: "code" }, bar, element("pre", { tabIndex: 0 }, code)));
    this.leaf = { kind: "code", node: code, fence, indent, text: "", is_empty: true };
  }
  take_code_line(line) {
    const { fence, indent } = this.leaf;
    const mark = line.trim();
    if (mark.length >= fence.length && mark === fence[0].repeat(mark.length)) {
      return this.close_leaf();
    }
    this.leaf.text += (this.leaf.is_empty ? "" : "\n") + without_indent(line, indent);
    this.leaf.is_empty = false;
  }
  draw_code() {
    if (!this.leaf || this.leaf.kind !== "code" || !this.leaf.text) return;
    this.append(this.leaf.node, document.createTextNode(this.leaf.text));
    this.leaf.text = "";
  }

  // The next line of a paragraph, which may be the line above a table.
  go_on(line, depth) {
    const { text, node } = this.leaf;
    const is_table = depth === this.containers.length && !this.before && node.tagName === "P" &&
      text.includes("|") && !text.includes("\n") && is_table_rule(line) &&
      cells_of(line).length === cells_of(text).length;
    if (!is_table) return this.add_to_paragraph(line.trimStart());
    const head = element("thead"), rows = element("tbody");
    node.replaceWith(element("div", { className: "table", tabIndex: 0 },
      element("table", {}, head, rows)));
    this.add_row(head, "th", text);
    this.leaf = { kind: "table", rows };
  }
  add_row(place, tag, line) {
    this.append(place, element("tr", {}, ...cells_of(line).map(
      (cell) => element(tag, {}, ...new Inline(cell).nodes()))));
  }

  add_to_paragraph(line) {
    if (!this.leaf) {
      this.leaf = { kind: "paragraph", node: this.append(this.parent(), element("p")), text: line };
    } else {
      this.add_part("\n" + line);
    }
  }
  // A paragraph that has become long is drawn for the last time, and goes on in a part of its own.
  add_part(text) {
    if (this.leaf.kind === "paragraph" && this.leaf.text.length > part_max) {
      this.draw();
      const place = this.leaf.node.closest("p");
      this.leaf = { kind: "paragraph", node: this.append(place, element("span")), text: "" };
    }
    this.leaf.text += text;
  }

  // Shows what the leaf has got.
  draw() {
    if (this.leaf && this.leaf.kind === "paragraph") {
      this.leaf.node.replaceChildren(...new Inline(this.leaf.text).nodes());
    }
    this.draw_code();
  }
  close_leaf() {
    this.draw();
    this.leaf = null;
  }
  close_to(depth) {
    this.close_leaf();
    this.containers.length = depth;
  }
}

// "Title ##" -> "Title"
function without_closing_marks(line) {
  const text = line.trimEnd();
  let end = text.length;
  while (end > 0 && text[end - 1] === "#") --end;
  return end === 0 || /\s/.test(text[end - 1]) ? text.slice(0, end).trimEnd() : text;
}
