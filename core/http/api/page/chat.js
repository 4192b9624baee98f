const at = (id) => document.getElementById(id);
const saved = ["system", "temperature", "top_p", "max_tokens", "seed"];
let messages = [];
let running = null;  // the AbortController of the answer that is being written

// The key stays in this tab; the other settings stay in this browser.
at("key").value = sessionStorage.getItem("key") || "";
for (const name of saved) at(name).value = localStorage.getItem("sluice." + name) || "";
at("key").addEventListener("change", () => {
  sessionStorage.setItem("key", at("key").value);
  connect();
});
for (const name of saved) {
  at(name).addEventListener("change", () => localStorage.setItem("sluice." + name, at(name).value));
}

function fields() {
  const key = at("key").value.trim();
  const found = { "Content-Type": "application/json" };
  if (key) found.Authorization = "Bearer " + key;
  return found;
}

function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  while (n >= 1024 && i + 1 < units.length) { n /= 1024; ++i; }
  return (i < 2 ? Math.round(n) : n.toFixed(i === 2 ? 0 : 2)) + " " + units[i];
}

function fill(table, rows) {
  table.replaceChildren(...rows.map(([name, value, kind]) => {
    const row = document.createElement("tr");
    if (kind) row.className = kind;
    for (const text of [name, value]) {
      row.appendChild(document.createElement("td")).textContent = text;
    }
    return row;
  }));
}

async function connect() {
  try {
    const answer = await fetch("props", { headers: fields() });
    const props = await answer.json();
    if (!answer.ok) throw new Error(props.error.message);
    at("model").textContent = props.model;
    document.title = props.model + " - sluice";
    const plan = props.plan;
    fill(at("plan"), [
      ...plan.lines.map((line) => [line.name, bytes(line.bytes)]),
      ["together", bytes(plan.total_bytes), "sum"], ["budget", bytes(plan.budget_bytes)]]);
    fill(at("facts"), [
      ["context", props.context === null ? "no end" : props.context + " tokens"],
      ["texts at a time", props.total_slots], ["threads", props.threads],
      ["instructions", props.isa], ["reads weights with", props.io]]);
    at("temperature").placeholder = props.defaults.temperature;
    at("top_p").placeholder = props.defaults.top_p;
    at("max_tokens").placeholder = props.defaults.max_tokens;
  } catch (problem) {
    at("model").textContent = problem.message;
    setTimeout(connect, 2000);
  }
}

function show(role, text) {
  const box = document.createElement("div");
  box.className = "message " + role;
  box.textContent = text;
  at("messages").appendChild(box);
  box.scrollIntoView({ block: "end" });
  return box;
}

// Calls take() with the JSON of each event, until the stream ends.
async function read_events(body, take) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let waiting = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    waiting += value;
    const events = waiting.split("\n\n");
    waiting = events.pop();
    for (const event of events) {
      if (event.startsWith("data: {")) take(JSON.parse(event.slice(6)));
    }
  }
}

function request_body() {
  const body = { messages: [], stream: true, stream_options: { include_usage: true } };
  if (at("system").value) body.messages.push({ role: "system", content: at("system").value });
  body.messages.push(...messages);
  for (const name of ["temperature", "top_p", "max_tokens", "seed"]) {
    if (at(name).value !== "") body[name] = Number(at(name).value);
  }
  return body;
}

// One answer, shown while it comes.
class Answer {
  constructor() {
    this.box = show("assistant", "");
    this.text = "";
    this.thought = "";
    this.pieces = 0;
    this.content = document.createElement("span");
  }
  take(event) {
    if (event.error) throw new Error(event.error.message);
    if (event.usage) this.usage = event.usage;
    const choice = event.choices && event.choices[0];
    if (!choice) return;
    const { content, reasoning_content } = choice.delta;
    if (reasoning_content) this.think(reasoning_content);
    if (content) this.text += content;
    if (content || reasoning_content) this.count();
    this.content.textContent = this.text;
    if (!this.content.isConnected) this.box.appendChild(this.content);
    const list = at("messages");
    if (list.scrollHeight - list.scrollTop - list.clientHeight < 120) {
      list.scrollTop = list.scrollHeight;
    }
  }
  think(text) {
    if (!this.details) {
      this.details = document.createElement("details");
      this.details.appendChild(document.createElement("summary")).textContent = "Thoughts";
      this.details.appendChild(document.createElement("div"));
      this.box.prepend(this.details);
    }
    this.thought += text;
    this.details.lastChild.textContent = this.thought;
  }
  count() {
    const now = performance.now();
    if (this.pieces === 0) this.began = now;
    this.last = now;
    ++this.pieces;
    if (this.pieces > 1) this.tell(this.pieces);
  }
  tell(tokens) {
    const seconds = (this.last - this.began) / 1000;
    if (seconds > 0) at("speed").textContent = ((tokens - 1) / seconds).toFixed(1) + " tokens/s";
  }
  end() {
    if (this.usage && this.usage.completion_tokens > 1) this.tell(this.usage.completion_tokens);
  }
}

async function ask() {
  const answer = new Answer();
  running = new AbortController();
  try {
    const response = await fetch("v1/chat/completions", {
      method: "POST", headers: fields(), body: JSON.stringify(request_body()),
      signal: running.signal });
    if (!response.ok) throw new Error((await response.json()).error.message);
    await read_events(response.body, (event) => answer.take(event));
  } catch (problem) {
    if (problem.name !== "AbortError") show("bad", problem.message);
  }
  answer.end();
  running = null;
  if (answer.text) messages.push({ role: "assistant", content: answer.text });
  if (!answer.text && !answer.thought) answer.box.remove();
}

at("form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const text = at("input").value.trim();
  if (!text || running) return;
  at("input").value = "";
  messages.push({ role: "user", content: text });
  show("user", text);
  at("send").hidden = true;
  at("stop").hidden = false;
  await ask();
  at("send").hidden = false;
  at("stop").hidden = true;
  at("input").focus();
});
at("input").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    at("form").requestSubmit();
  }
});
at("stop").addEventListener("click", () => running && running.abort());
at("clear").addEventListener("click", () => {
  if (running) running.abort();
  messages = [];
  at("messages").replaceChildren();
  at("speed").textContent = "";
});
at("aside-button").addEventListener("click", () => at("aside").classList.toggle("shown"));
connect();
at("input").focus();
