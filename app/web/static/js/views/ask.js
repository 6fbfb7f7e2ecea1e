// What approvals and questions have in common: the card, the time that is left, and what became of them.
import { left } from "../asks.js";
import { deviceId } from "../device.js";
import { Component, createRef, html } from "../html.js";
import { isTyping } from "../typing.js";
import { Asks, Check, Chevron, Cross, Dash, Hand } from "./icons.js";

const SOON_S = 15;
const PREVIEW = 200; // characters
const ALLOWED = { once: "Allowed once", session: "Allowed for this conversation", always: "Always allowed" };
const OUTCOMES = {
  denied: "Denied",
  answered: "Answered",
  expired: "Nobody answered in time",
  resolved_elsewhere: "Settled in another way",
  uncertain: "Nobody knows whether the answer arrived",
  closed: "Not asked any more",
};

/** @param props ask, title, subject, children: what is asked and how to answer it; gone when it is over */
export class AskCard extends Component {
  card = createRef();

  componentDidMount() {
    const { ask } = this.props;
    if (!ask.outcome && !ask.isWaiting) this.#offer();
  }

  /** Whoever neither types nor is about to answer another one can answer at once. */
  #offer() {
    if (isTyping() || document.activeElement?.closest(".ask, dialog")) return;
    this.card.current?.querySelector("button:not(:disabled)")?.focus({ preventScroll: true });
  }

  getSnapshotBeforeUpdate() {
    const { activeElement } = document;
    if (activeElement !== document.body) this.isHeld = Boolean(this.card.current?.contains(activeElement));
    return null;
  }

  /** An error is seen, and the focus does not fall out of the page with the button that had it. */
  componentDidUpdate(was) {
    const { error } = this.props.ask;
    if (error && error !== was.ask.error) this.card.current?.querySelector(".ask-error").scrollIntoView({ block: "nearest" });
    const { outcome, sending, isWaiting } = this.props.ask;
    if (was.ask.isWaiting && !isWaiting && !outcome) return this.#offer();
    if (!this.isHeld || (was.ask.outcome === outcome && (was.ask.sending === null || sending !== null))) return;
    this.card.current?.querySelector("summary, button:not(:disabled)")?.focus({ preventScroll: true });
  }

  render({ ask, title, subject, children }) {
    if (ask.outcome) return html`<${Outcome} ask=${ask} card=${this.card} />`;
    return html`
      <section class="ask" ref=${this.card} data-waiting=${ask.isWaiting ? "" : null} aria-label=${title}>
        <header>
          <span class="ask-sign">${ask.kind === "approval" ? html`<${Hand} />` : html`<${Asks} />`}</span>
          <div><h4>${title}</h4>${subject && html`<p class="ask-subject">${subject}</p>`}</div>
          <${Countdown} ask=${ask} />
        </header>
        ${children}
        <p class="ask-note" role="status">${note(ask)}</p>
        ${ask.error && html`<p class="ask-error" role="alert">${ask.error}</p>`}
      </section>`;
  }
}

function note(ask) {
  if (ask.isWaiting) return "After the one above.";
  if (ask.sending !== null) return "Sending your answer …";
  return ask.isCut ? "This is not all of it: the rest was too long to be shown." : "";
}

/** One line that opens to what had been asked. */
function Outcome({ ask, card }) {
  const good = ask.outcome === "allowed" || ask.outcome === "answered";
  const bad = ask.outcome === "denied" || ask.outcome === "uncertain";
  return html`
    <details class="tool outcome" ref=${card} data-state=${good ? "completed" : bad ? "failed" : "ended"}>
      <summary>
        <span class="tool-state">${good ? html`<${Check} />` : bad ? html`<${Cross} />` : html`<${Dash} />`}</span>
        <span class="outcome-words">${whatBecame(ask)}<span class="tool-preview">${firstLine(ask)}</span></span>
        <${Chevron} />
      </summary>
      <div class="tool-body">
        ${ask.description && html`<p class="ask-about">${ask.description}</p>`}
        <div class="field">
          <span>${ask.kind === "approval" ? (ask.tool ?? "Command") : "Question"}</span><pre tabindex="0">${ask.text}</pre>
        </div>
        ${ask.kind === "question" && ask.answer !== null && html`
          <div class="field"><span>Answer</span><pre tabindex="0">${ask.answer}</pre></div>`}
      </div>
    </details>`;
}

function firstLine({ kind, text, answer }) {
  const told = kind === "question" && answer ? answer : text;
  return told.trim().split("\n", 1)[0].slice(0, PREVIEW);
}

function whatBecame({ outcome, answer, by }) {
  const words = outcome === "allowed" ? (ALLOWED[answer] ?? "Allowed") : (OUTCOMES[outcome] ?? outcome);
  if (!by) return words;
  return `${words} · ${by === deviceId() ? "on this device" : "on another device"}`;
}

/** Ticks by itself, silently: it would talk over everything else. */
class Countdown extends Component {
  componentDidMount() {
    this.timer = setInterval(() => this.forceUpdate(), 1000);
  }

  componentWillUnmount() {
    clearInterval(this.timer);
  }

  render({ ask }) {
    const seconds = ask.isWaiting ? null : left(ask);
    if (seconds === null) return null;
    const clock = `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")}`;
    return html`
      <span class="countdown" data-soon=${seconds <= SOON_S ? "" : null} aria-hidden="true"
        title="Without an answer the agent goes on without it">${seconds ? clock : "Time is up"}</span>`;
  }
}
