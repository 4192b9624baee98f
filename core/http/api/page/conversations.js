// What the browser keeps for the page. A browser may forbid that, or have no room left: then
// everything works and lasts as long as the page, and `problem` says why.
class Store {
  // `kind`: "localStorage", or "sessionStorage" for what belongs to this tab.
  constructor(kind) {
    this.memory = new Map();  // what the browser did not take
    this.problem = "";
    try {
      this.kept = window[kind];
      this.kept.length;
    } catch {
      this.kept = null;
    }
  }

  names() {
    const kept = this.kept ? Object.keys(this.kept) : [];
    return [...new Set([...kept, ...this.memory.keys()])];
  }
  get(name) {
    if (this.memory.has(name)) return this.memory.get(name);
    return this.kept ? this.kept.getItem(name) : null;
  }
  set(name, value) {
    try {
      this.kept.setItem(name, value);
      this.memory.delete(name);
      this.problem = "";
    } catch (error) {
      this.memory.set(name, value);
      this.problem = error.name === "QuotaExceededError"
        ? "The browser has no room for this conversation: it is lost with this tab, unless you " +
          "delete others."
        : "The browser keeps nothing for this page: conversations are lost with this tab.";
    }
  }
  remove(name) {
    this.memory.delete(name);
    if (this.kept) this.kept.removeItem(name);
  }
}

// Conversations: {id, title, changed: milliseconds since 1970, messages}. A message is {role,
// content}, and one of the model's may have a `thought` and `finish`, why it ended. Each
// conversation has an entry of its own, so that tabs do not overwrite those of each other.
class Conversations {
  constructor(store) {
    this.store = store;
    this.prefix = "sluice.conversation.";
  }

  // The last one that was changed is the first.
  list() {
    const ids = this.store.names().filter((name) => name.startsWith(this.prefix))
      .map((name) => name.slice(this.prefix.length));
    return ids.map((id) => this.load(id)).filter((one) => one !== null)
      .sort((a, b) => b.changed - a.changed);
  }

  // Null when there is none, or none that can be read.
  load(id) {
    try {
      const { title, changed, messages } = JSON.parse(this.store.get(this.prefix + id));
      const is_sound = typeof title === "string" && typeof changed === "number" &&
        messages.every(({ role, content, thought = "" }) => ["user", "assistant"].includes(role) &&
          typeof content === "string" && typeof thought === "string");
      return is_sound ? { id, title, changed, messages } : null;
    } catch {
      return null;
    }
  }

  save({ id, title, changed, messages }) {
    this.store.set(this.prefix + id, JSON.stringify({ title, changed, messages }));
  }
  remove(id) {
    this.store.remove(this.prefix + id);
  }

  // The id in the name of an entry, or null.
  id_in(name) {
    return name && name.startsWith(this.prefix) ? name.slice(this.prefix.length) : null;
  }

  fresh() {
    const id = Date.now().toString(36) + Math.random().toString(36).slice(2, 10);
    return { id, title: "", changed: 0, messages: [] };
  }
}
