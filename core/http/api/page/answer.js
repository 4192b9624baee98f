// One message of the model, shown while it comes, or whole.
class Answer {
  constructor() {
    this.text = "";
    this.thought = "";
    this.finish = null;  // why it ended, as the API says; null: it was stopped, or goes on
    this.usage = null;
    this.undrawn = "";   // the end of the text that is not shown yet
    this.pieces = 0;
    this.body = element("div", { className: "text" });
    this.markdown = new Markdown(this.body);
    this.box = element("div", { className: "message assistant" }, this.body);
    at("messages").append(this.box);
  }

  static of({ content, thought, finish }) {
    const answer = new Answer();
    if (thought) answer.add_thought(thought);
    answer.add_text(content);
    answer.finish = finish;
    answer.end();
    return answer;
  }

  message() {
    const message = { role: "assistant", content: this.text, finish: this.finish };
    if (this.thought) message.thought = this.thought;
    return message;
  }
  // An answer may be empty when the model has ended it so; one that was stopped is none then.
  is_there() {
    return this.text !== "" || this.finish !== null;
  }

  // An event of the stream.
  take(event) {
    if (event.error) throw new Error(event.error.message);
    if (event.usage) this.usage = event.usage;
    if (event.prompt_progress) this.progress = event.prompt_progress;
    const choice = event.choices && event.choices[0];
    if (!choice) return;
    const { content, reasoning_content } = choice.delta;
    if (choice.finish_reason) this.finish = choice.finish_reason;
    if (!content && !reasoning_content) return;
    this.end_waiting();
    if (reasoning_content) this.add_thought(reasoning_content);
    if (content) this.add_text(content);
    this.count();
  }

  add_text(text) {
    this.text += text;
    if (!this.undrawn) requestAnimationFrame(() => this.draw());
    this.undrawn += text;
    if (this.summary) this.summary.textContent = "Thoughts";
  }
  // Browsers draw nothing of a tab that is not seen, so that there may be much to draw.
  draw() {
    if (!this.undrawn) return;
    const list = at("messages");
    const is_at_end = list.scrollHeight - list.scrollTop - list.clientHeight < 120;
    this.markdown.write(this.undrawn);
    this.undrawn = "";
    if (is_at_end) list.scrollTop = list.scrollHeight;
  }
  add_thought(text) {
    if (!this.summary) {
      this.summary = element("summary", { textContent: "Thinking" });
      this.thoughts = element("div");
      this.box.prepend(element("details", {}, this.summary, this.thoughts));
    }
    this.thought += text;
    this.thoughts.append(text);
  }

  // Shows that the server reads the prompt, and how far it has come.
  wait() {
    const began = Date.now();
    const label = element("span"), bar = element("progress");
    bar.setAttribute("aria-label", "Reading the prompt");
    const tell = () => {
      const seconds = Math.round((Date.now() - began) / 1000);
      const { total, processed } = this.progress || {};
      label.textContent = "Reading the prompt" +
        (total ? `: ${processed} of ${total} tokens` : "") + (seconds ? `, ${seconds} s` : "");
      if (total && processed) Object.assign(bar, { max: total, value: processed });
    };
    this.waiting = element("div", { className: "waiting" }, label, bar);
    this.box.append(this.waiting);
    this.box.setAttribute("aria-busy", "true");  // is read out when it is whole
    this.ticks = setInterval(tell, 250);
    tell();
  }
  end_waiting() {
    clearInterval(this.ticks);
    if (this.waiting) this.waiting.remove();
  }

  count() {
    const now = performance.now();
    if (this.pieces === 0) this.began = now;
    this.last = now;
    ++this.pieces;
    if (this.pieces > 1) this.tell_speed(this.pieces);
  }
  tell_speed(tokens) {
    const seconds = (this.last - this.began) / 1000;
    if (seconds > 0) at("speed").textContent = ((tokens - 1) / seconds).toFixed(1) + " tokens/s";
  }

  end() {
    this.end_waiting();
    this.draw();
    this.markdown.end();
    this.box.removeAttribute("aria-busy");
    if (this.usage && this.usage.completion_tokens > 1) {
      this.tell_speed(this.usage.completion_tokens);
    }
    if (this.summary) this.summary.textContent = "Thoughts";
    const why = this.finish === "length" ? "Cut off: it has as many tokens as it may."
      : this.finish === null ? "Stopped before its end." : this.text === "" ? "No text." : "";
    if (why) this.box.append(element("div", { className: "note", textContent: why }));
    const again = button("Regenerate", regenerate, "plain change again");
    this.box.append(element("div", { className: "tools" },
      button("Copy", (from) => copy(this.text, from)), again));
  }
}
