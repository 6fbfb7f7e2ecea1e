import { Component, html } from "../html.js";
import { AskCard } from "./ask.js";
import { Up } from "./icons.js";
import { Prose } from "./prose.js";

/** The agent wants to know something: an offered answer, or the owner's own words. */
export class Question extends Component {
  state = { text: "" };

  #answer = (event) => {
    event.preventDefault();
    const text = this.state.text.trim();
    if (text) this.props.asks.answer(this.props.ask.id, text);
  };

  render({ ask, asks }, { text }) {
    const busy = ask.sending !== null;
    return html`
      <${AskCard} ask=${ask} title="The agent asks">
        <div class="question" tabindex="0"><${Prose} text=${ask.text} streaming=${false} /></div>
        ${!ask.isWaiting && ask.choices.length > 0 && html`
          <div class="ask-choices">
            ${ask.choices.map(String).map((choice) => html`
              <button type="button" key=${choice} class="button plain" disabled=${busy}
                aria-busy=${ask.sending === choice ? "true" : null} onClick=${() => asks.answer(ask.id, choice)}>
                ${choice}
              </button>`)}
          </div>`}
        ${!ask.isWaiting && html`<form class="ask-words" onSubmit=${this.#answer}>
          <input aria-label="Your answer" placeholder=${ask.choices.length ? "Or in your own words" : "Your answer"} value=${text}
            disabled=${busy} enterkeyhint="send" autocomplete="off" onInput=${(event) => this.setState({ text: event.target.value })} />
          <button type="submit" class="round" aria-label="Answer" disabled=${busy || !text.trim()}><${Up} /></button>
        </form>`}
      </${AskCard}>`;
  }
}
