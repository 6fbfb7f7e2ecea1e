import { Component, html } from "../html.js";
import { blocks } from "../markdown.js";
import { answerText, isFailed } from "../turns.js";

/**
 * Reads the running answer to screen readers, block by block as each is whole. The transcript itself is silent:
 * announced word by word it would only stammer.
 */
export class Announcer extends Component {
  state = { text: "" };
  said = 0; // blocks of the turn that were announced
  turn = null;

  componentDidUpdate() {
    const { turn } = this.props;
    const id = turn?.id ?? null;
    if (id === null) return;
    if (id !== this.turn) {
      this.turn = id;
      // A turn that was over when it came into view was not spoken to this listener.
      this.said = turn.status === "running" ? 0 : Infinity;
    }
    const all = blocks(answerText(turn)).map((block) => block.raw.trim());
    const whole = turn.status === "running" ? all.slice(0, -1) : all;
    const fresh = whole.slice(this.said);
    if (isFailed(turn) && this.said !== Infinity) fresh.push(turn.error?.message ?? "This turn failed.");
    if (!fresh.length) return;
    this.said = isFailed(turn) ? Infinity : whole.length;
    this.setState({ text: fresh.join("\n") });
  }

  render(_, { text }) {
    return html`<div class="sr" aria-live="polite" aria-atomic="true">${text}</div>`;
  }
}
