// The page: its settings, the conversation, and the requests to the server.
const at = (id) => document.getElementById(id);
const store = new Store("localStorage"), tab = new Store("sessionStorage");
const conversations = new Conversations(store);
const numbers = ["temperature", "top_p", "max_tokens", "seed"];
const cut_off = "The connection to the server was cut off.";
const narrow_panels = [["chats-button", "chats"], ["aside-button", "aside"]];

let conversation = conversations.fresh();
let running = null;  // the answer that is being written: {answer, typed, stop, done}
let editing = null;  // the number of the message that is being edited
let told_problem = "";  // of the store
let retry = 0;  // the timer of the next connect()

// ---- The server

function fields() {
  const key = at("key").value.trim();
  const found = { "Content-Type": "application/json" };
  if (key) found.Authorization = "Bearer " + key;
  return found;
}

// As fetch(), but throws an error with a message for people when the server refuses.
async function ask_server(place, how = {}) {
  let answer;
  try {
    answer = await fetch(place, { ...how, headers: fields() });
  } catch (problem) {
    if (problem.name === "AbortError") throw problem;
    throw new Error("The server cannot be reached.");
  }
  if (answer.ok) return answer;
  const said = await answer.json().catch(() => null);
  const message = said && said.error && said.error.message;
  const problem = new Error(message || `The server answers with status ${answer.status}.`);
  problem.status = answer.status;
  throw problem;
}

function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  while (n >= 1024 && i + 1 < units.length) { n /= 1024; ++i; }
  return (i < 2 ? Math.round(n) : n.toFixed(i === 2 ? 0 : 2)) + " " + units[i];
}

function fill(table, rows) {
  table.replaceChildren(...rows.map(([name, value, kind = ""]) => element("tr",
    { className: kind }, element("td", {}, String(name)), element("td", {}, String(value)))));
}

async function connect() {
  clearTimeout(retry);
  try {
    const props = await (await ask_server("props")).json();
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
    at("max_tokens").placeholder = Math.min(props.defaults.max_tokens, props.context ?? Infinity);
  } catch (problem) {
    at("model").textContent = problem.message;
    if (problem.status !== 401) retry = setTimeout(connect, 2000);
  }
}

// Calls take() with the JSON of each event, until the stream ends.
async function read_events(body, take) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  const read = () => reader.read().catch((problem) => {
    throw problem.name === "AbortError" ? problem : new Error(cut_off);
  });
  let waiting = "";
  for (;;) {
    const { value, done } = await read();
    if (done) return;
    waiting += value;
    const events = waiting.split("\n\n");
    waiting = events.pop();
    for (const event of events) {
      if (event.startsWith("data: {")) take(JSON.parse(event.slice(6)));
    }
  }
}

function request_body(messages) {
  const body = { messages: [], stream: true, stream_options: { include_usage: true },
                 return_progress: true };
  if (at("system").value) body.messages.push({ role: "system", content: at("system").value });
  body.messages.push(...messages.map(({ role, content }) => ({ role, content })));
  for (const name of numbers) {
    if (at(name).value !== "") body[name] = Number(at(name).value);
  }
  return body;
}

// ---- What is said to the person

function notice(text, kind = "", ...buttons) {
  at("notice").className = kind;
  at("notice").replaceChildren(...(text === "" ? []
    : [element("span", { textContent: text }), ...buttons, button("Close", () => notice(""))]));
}

// Keeps a conversation, and tells when the browser does not from now on.
function save(kept) {
  conversations.save(kept);
  if (store.problem && store.problem !== told_problem) notice(store.problem, "bad");
  told_problem = store.problem;
}

// ---- The conversation

function show_question({ content }) {
  const edit = button("Edit", () => begin_edit([...at("messages").children].indexOf(box)),
    "plain change");
  const box = element("div", { className: "message user" },
    element("div", { className: "text", textContent: content }),
    element("div", { className: "tools" }, button("Copy", (from) => copy(content, from)), edit));
  at("messages").append(box);
}

// One box for each message, in their order.
function show_messages() {
  at("messages").replaceChildren();
  for (const message of conversation.messages) {
    if (message.role === "user") show_question(message);
    else Answer.of(message);
  }
  at("messages").scrollTop = at("messages").scrollHeight;
}

function set_busy(is_busy) {
  document.body.classList.toggle("busy", is_busy);
  at("send").hidden = is_busy;
  at("stop").hidden = !is_busy;
}

// Asks for the answer to these messages, of which the last is the person's. When none comes, the
// conversation is as before, and the text is in the box again.
async function ask(messages) {
  const before = conversation.messages, was_edited = editing;
  // What goes back into the box: nothing where an old message gets another answer.
  const typed = before.includes(messages.at(-1)) ? "" : messages.at(-1).content;
  const stop = new AbortController();
  let tell_done;
  const done = new Promise((tell) => { tell_done = tell; });
  notice("");
  end_edit();
  conversation.messages = messages;
  show_messages();
  const answer = new Answer();
  running = { answer, typed, stop, done };
  set_busy(true);
  answer.wait();
  answer.box.scrollIntoView({ block: "end" });
  let problem = null;
  try {
    const response = await ask_server("v1/chat/completions",
      { method: "POST", body: JSON.stringify(request_body(messages)), signal: stop.signal });
    await read_events(response.body, (event) => answer.take(event));
    if (answer.finish === null) throw new Error(cut_off);
  } catch (error) {
    problem = error;
    stop.abort();
  }
  answer.end();
  running = null;
  set_busy(false);
  if (problem && problem.name !== "AbortError") notice(problem.message, "bad");
  if (answer.is_there()) {
    messages.push(answer.message());
    keep_conversation();
  } else {
    conversation.messages = before;
    show_messages();
    const since = at("input").value;
    if (was_edited !== null) begin_edit(was_edited);
    at("input").value = together(typed, since);
  }
  if (document.activeElement === document.body) at("input").focus();
  tell_done();
}

function together(...texts) {
  return texts.filter((text) => text.trim()).join("\n\n");
}

function title_of(messages) {
  return messages[0].content.trim().slice(0, 60).replace(/\s+/g, " ");
}

function keep_conversation() {
  conversation.changed = Date.now();
  conversation.title ||= title_of(conversation.messages);
  tab.set("sluice.open", conversation.id);
  save(conversation);
  show_list();
}

async function submit() {
  const content = at("input").value.trim();
  if (!content || running) return;
  at("input").value = "";
  await ask([...conversation.messages.slice(0, editing ?? undefined), { role: "user", content }]);
}

function regenerate() {
  if (running) return;
  cancel_edit();
  ask(conversation.messages.slice(0, -1));
}

// ---- Editing

function begin_edit(index) {
  if (running) return;
  end_edit();
  editing = index;
  at("editing").hidden = false;
  at("messages").children[index].classList.add("edited");
  at("input").value = conversation.messages[index].content;
  at("input").focus();
}
function end_edit() {
  if (editing !== null) at("messages").children[editing]?.classList.remove("edited");
  editing = null;
  at("editing").hidden = true;
}
function cancel_edit() {
  if (editing !== null) at("input").value = "";
  end_edit();
}

// ---- The list of conversations

// Ends the answer that is being written, so that another conversation can be shown.
async function leave() {
  if (running) {
    running.stop.abort();
    await running.done;
  }
  cancel_edit();
}

async function open_conversation(next) {
  await leave();
  notice("");
  conversation = next;
  tab.set("sluice.open", next.id);
  at("speed").textContent = "";
  show_messages();
  show_list();
  close_panels();
  at("input").focus();
}

function show_list() {
  at("list").replaceChildren(...conversations.list().map((kept) => {
    const title = button(kept.title, () => {
      const found = conversations.load(kept.id);
      if (found) open_conversation(found);
    }, "plain title");
    title.title = kept.title;
    if (kept.id === conversation.id) title.setAttribute("aria-current", "true");
    const item = element("li", {}, title);
    const tools = [
      ["✎", "Rename", () => rename(item, kept)], ["✕", "Delete", () => remove(kept)]];
    for (const [sign, name, action] of tools) {
      const made = button(sign, action);
      made.setAttribute("aria-label", `${name} ${kept.title}`);
      made.title = name;
      item.append(made);
    }
    return item;
  }));
}

function rename(item, kept) {
  const input = element("input", { value: kept.title, maxLength: 200 });
  input.setAttribute("aria-label", "Title");
  let is_over = false;  // a field that is taken away loses the focus too
  const end = (takes) => {
    if (is_over) return;
    is_over = true;
    const title = input.value.trim();
    const found = conversations.load(kept.id);  // it may have grown
    if (takes && title && found) {
      save({ ...found, title });
      if (kept.id === conversation.id) conversation.title = title;
    }
    show_list();
  };
  input.addEventListener("blur", () => end(true));
  input.addEventListener("keydown", (event) => {
    if (event.isComposing || !["Enter", "Escape"].includes(event.key)) return;
    event.stopPropagation();
    end(event.key === "Enter");
  });
  item.replaceChildren(input);
  input.select();
}

async function remove(kept) {
  if (kept.id === conversation.id) await open_conversation(conversations.fresh());
  const removed = conversations.load(kept.id);
  conversations.remove(kept.id);
  show_list();
  notice(`Deleted “${kept.title}”.`, "", button("Undo", () => {
    notice("");
    if (removed) save(removed);
    show_list();
  }));
}

// ---- Events

function close_panels() {
  for (const [name, panel] of narrow_panels) show_panel(name, panel, false);
}
function show_panel(name, panel, is_shown) {
  at(panel).classList.toggle("shown", is_shown);
  at(name).setAttribute("aria-expanded", String(is_shown));
}

// The key stays in this tab; the other settings stay in this browser.
function use_settings() {
  at("key").value = tab.get("key") || "";
  at("key").addEventListener("change", () => {
    tab.set("key", at("key").value);
    connect();
  });
  for (const name of ["system", ...numbers]) {
    at(name).value = store.get("sluice." + name) || "";
    at(name).addEventListener("change", () => store.set("sluice." + name, at(name).value));
  }
}

// The page may be gone soon. What is there of an answer is kept, and else its question.
function keep_all() {
  let typed = at("input").value;
  if (running) {
    const { answer } = running;
    if (answer.is_there()) {
      const messages = [...conversation.messages, answer.message()];
      const title = conversation.title || title_of(messages);
      save({ ...conversation, changed: Date.now(), title, messages });
      tab.set("sluice.open", conversation.id);
    } else {
      typed = together(running.typed, typed);
    }
  }
  tab.set("sluice.typed", typed);
}

// Another tab has changed a conversation.
function follow(event) {
  if (event.key !== null && conversations.id_in(event.key) === null) return;
  show_list();
  if (running || editing !== null || conversations.id_in(event.key) !== conversation.id) return;
  const changed = conversations.load(conversation.id);
  if (!changed) return;
  conversation = changed;
  show_messages();
}

function listen() {
  at("form").addEventListener("submit", (event) => {
    event.preventDefault();
    submit();
  });
  at("input").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      at("form").requestSubmit();
    }
  });
  at("stop").addEventListener("click", () => running && running.stop.abort());
  at("new").addEventListener("click", () => open_conversation(conversations.fresh()));
  at("keep").addEventListener("click", () => {
    cancel_edit();
    at("input").focus();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || event.isComposing) return;
    if (document.querySelector(".shown")) close_panels();
    else if (running) running.stop.abort();
    else if (editing !== null) at("keep").click();
  });
  for (const [name, panel] of narrow_panels) {
    at(name).addEventListener("click",
      () => show_panel(name, panel, !at(panel).classList.contains("shown")));
  }
  addEventListener("pagehide", keep_all);
  addEventListener("visibilitychange", () => document.hidden && keep_all());
  addEventListener("storage", follow);
}

use_settings();
listen();
conversation = conversations.load(tab.get("sluice.open") || "") || conversation;
show_messages();
show_list();
at("input").value = tab.get("sluice.typed") || "";
connect();
at("input").focus();
