import { html } from "../html.js";
import { AskCard } from "./ask.js";

const LABELS = {
  deny: "Deny",
  once: "Allow once",
  session: "Allow for this conversation",
  always: "Always allow",
};
const LONGEST_OPTION = 24; // characters that fit on any line
const MAIN = ["deny", "once"]; // refusing comes first: it does no harm where a key is pressed by mistake
const KNOWN = Object.keys(LABELS);
const place = (choice) => (KNOWN.includes(choice) ? KNOWN.indexOf(choice) : KNOWN.length);

/** The agent wants to do something that its owner has to allow. */
export function Approval({ ask, asks }) {
  const choices = [...ask.choices].sort((one, other) => place(one) - place(other));
  const button = (choice) => html`
    <button type="button" key=${choice} class=${looks(choice)} disabled=${ask.sending !== null}
      aria-busy=${ask.sending === choice ? "true" : null} onClick=${() => asks.answer(ask.id, choice)}>
      ${LABELS[choice] ?? choice}
    </button>`;
  return html`
    <${AskCard} ask=${ask} title="May the agent do this?" subject=${ask.tool}>
      ${ask.description && html`<p class="ask-about">${ask.description}</p>`}
      ${ask.text && html`<pre class="command" tabindex="0" aria-label="Command">${words(ask.text)}</pre>`}
      ${!ask.isWaiting && html`
        <div class="ask-main">${choices.filter((choice) => MAIN.includes(choice)).map(button)}</div>
        <div class="ask-more">${choices.filter((choice) => !MAIN.includes(choice)).map(button)}</div>`}
    </${AskCard}>`;
}

/** Browsers break lines after a hyphen, which would make two words of an option. */
function words(command) {
  const isOption = (word) => word.includes("-") && word.length <= LONGEST_OPTION;
  return command.split(/(\s+)/).map((word) => (isOption(word) ? html`<span class="whole">${word}</span>` : word));
}

function looks(choice) {
  if (choice === "once") return "button";
  return choice === "deny" ? "button deny" : "button small plain";
}
