import { Component, html } from "../html.js";
import { Chevron, Spark } from "./icons.js";
import { Prose } from "./prose.js";

/** The agent's reasoning: open while it is being thought, folded when it goes on, unless the reader decides. */
export class Thought extends Component {
  state = { chosen: null };

  #toggle = (event) => {
    event.preventDefault(); // the attribute is ours
    this.setState({ chosen: !this.#isOpen() });
  };

  #isOpen() {
    return this.state.chosen ?? this.props.thinking;
  }

  render({ text, thinking }) {
    return html`
      <details class="thought" open=${this.#isOpen()} data-thinking=${thinking ? "" : null}>
        <summary onClick=${this.#toggle}><${Spark} /><span>Thinking</span><${Chevron} /></summary>
        <div class="thought-text"><${Prose} text=${text} streaming=${thinking} /></div>
      </details>`;
  }
}
