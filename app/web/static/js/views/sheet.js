import { Component, createRef, html } from "../html.js";
import { Bin, Fork, Pencil } from "./icons.js";

const TITLE = 120; // characters

/** What can be done with a conversation: rename, fork, delete; or a name for a new one. A dialog from below. */
export class Sheet extends Component {
  dialog = createRef();
  field = createRef();
  state = { step: "menu", title: "", busy: false, error: null };

  componentDidUpdate(was, before) {
    const { of } = this.props;
    const { current } = this.dialog;
    if (of && of !== was.of) {
      this.setState({ step: of.session ? "menu" : "create", title: of.session?.title ?? "", busy: false, error: null });
      if (!current.open) current.showModal();
    }
    if (!of && current.open) current.close();
    if (of && (before.step !== this.state.step || of !== was.of)) this.#focus();
  }

  /** What was pressed is gone with its step: the next one begins with its field, or its first and harmless button. */
  #focus() {
    if (this.field.current) this.field.current.select();
    else this.dialog.current.querySelector("button")?.focus();
  }

  /** @param act whose promise says whether it was done */
  #do = async (act, done = this.props.onClose) => {
    this.setState({ busy: true, error: null });
    try {
      await act();
      done();
    } catch (error) {
      this.setState({ error: error.message });
    }
    this.setState({ busy: false });
  };

  #submit = (event) => {
    event.preventDefault();
    const { client, of, onOpened } = this.props;
    const title = this.state.title.trim();
    if (!title || this.state.busy) return;
    if (this.state.step === "create") this.#do(() => client.create(title), onOpened);
    else this.#do(() => client.rename(of.session, title));
  };

  #step({ client, of, onOpened }, { step, title, busy }) {
    const session = of?.session;
    const cancel = html`<button type="button" class="button plain" onClick=${this.props.onClose}>Cancel</button>`;
    const to = (next) => () => this.setState({ step: next, error: null });
    if (step === "menu") {
      return html`
        <h2>${session?.title}</h2>
        <button type="button" class="row" disabled=${busy} onClick=${to("rename")}><${Pencil} />Rename</button>
        <button type="button" class="row" disabled=${busy} onClick=${() => this.#do(() => client.fork(session), onOpened)}>
          <${Fork} />Fork: go on in a copy
        </button>
        <button type="button" class="row bad" disabled=${busy} onClick=${to("delete")}><${Bin} />Delete</button>`;
    }
    if (step === "delete") {
      return html`
        <h2>Delete this conversation?</h2>
        <p>“${session?.title}” will be gone for good, on every device.</p>
        <div class="sheet-actions">
          ${cancel}
          <button type="button" class="button danger" disabled=${busy} onClick=${() => this.#do(() => client.delete(session))}>
            Delete
          </button>
        </div>`;
    }
    return html`
      <form onSubmit=${this.#submit}>
        <h2><label for="title">${step === "create" ? "Name of the new conversation" : "Rename the conversation"}</label></h2>
        <input id="title" ref=${this.field} value=${title} maxlength=${TITLE} autocomplete="off" enterkeyhint="done"
          onInput=${(event) => this.setState({ title: event.target.value })} />
        <div class="sheet-actions">
          ${cancel}
          <button type="submit" class="button" disabled=${busy || !title.trim()}>
            ${step === "create" ? "Begin" : "Rename"}
          </button>
        </div>
      </form>`;
  }

  render(props, state) {
    const outside = (event) => event.target === event.currentTarget && props.onClose();
    return html`
      <dialog class="sheet" ref=${this.dialog} aria-label="Conversation" onClose=${props.onClose} onClick=${outside}>
        <div class="sheet-inner">
          ${props.of && this.#step(props, state)}
          <p class="refusal" role="alert">${state.error ?? (state.busy ? "One moment …" : "")}</p>
        </div>
      </dialog>`;
  }
}
