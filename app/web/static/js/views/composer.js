import { Component, createRef, html } from "../html.js";
import { tab } from "../store.js";
import { Halt, Up } from "./icons.js";

/** Where the owner writes. The draft survives a reload. */
export class Composer extends Component {
  box = createRef();
  state = { text: tab.get("draft") ?? "" };

  componentDidMount() {
    this.props.handle.current = this; // a ref would be a prop like any other
    this.#fit();
  }

  componentDidUpdate() {
    this.#fit();
  }

  /** As high as its text, up to what the style sheet allows. */
  #fit() {
    const { style } = this.box.current;
    style.height = "auto";
    style.height = `${this.box.current.scrollHeight}px`;
  }

  write(text) {
    this.setState({ text });
    tab.set("draft", text);
    this.box.current.focus();
  }

  #send = (event) => {
    event?.preventDefault();
    const text = this.state.text.trim();
    if (!text) return;
    this.write("");
    this.props.onSay(text);
  };

  #key = (event) => {
    // With a keyboard Enter sends; on a phone it makes a new line, and the button sends.
    const sends = event.key === "Enter" && !event.shiftKey && !event.isComposing && matchMedia("(pointer: fine)").matches;
    if (sends) this.#send(event);
  };

  render({ running, onStop }, { text }) {
    const stops = running && !text.trim();
    return html`
      <form class="composer" onSubmit=${this.#send}>
        <label class="sr" for="say">Message</label>
        <textarea id="say" ref=${this.box} rows="1" placeholder="Message your agent" enterkeyhint="enter" autocomplete="off"
          value=${text} onInput=${(event) => this.write(event.target.value)} onKeyDown=${this.#key} />
        ${stops
          ? html`<button type="button" class="round stop" aria-label=${running.stopping ? "Stopping" : "Stop"} disabled=${running.stopping} onClick=${() => onStop(running)}><${Halt} /></button>`
          : html`<button type="submit" class="round" aria-label="Send" disabled=${!text.trim()}><${Up} /></button>`}
      </form>`;
  }
}
