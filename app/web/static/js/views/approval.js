import { html } from "../html.js";
import { AskCard } from "./ask.js";

const LABELS = {
  deny: "Deny",
  once: "Allow once",
  session: "Allow for this conversation",
  always: "Always allow",
};
const LONGEST_OPTION = 24; // characters that fit on any line
const LONG = 400; // characters, or lines, that may not be seen at once
const LONG_LINES = 9;
const UNSEEN = /([\p{Cf}\u0000-\u0008\u000b-\u001f\u007f-\u009f\u2028\u2029\u115f\u1160\u3164\uffa0])/u;
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
      ${isLong(ask.text) && html`<p class="ask-note">${ask.text.length} characters: scroll to read all of it.</p>`}
      ${!ask.isWaiting && html`
        <div class="ask-main">${choices.filter((choice) => MAIN.includes(choice)).map(button)}</div>
        <div class="ask-more">${choices.filter((choice) => !MAIN.includes(choice)).map(button)}</div>`}
    </${AskCard}>`;
}

/**
 * The command as it will be run: signs that are not seen, or turn others around, are named. Browsers break lines after
 * a hyphen, which would make two words of an option.
 */
function words(command) {
  return command.split(UNSEEN).map((piece, at) => {
    if (at % 2) return html`<span class="unseen">${named(piece)}</span>`;
    const isOption = (word) => word.includes("-") && word.length <= LONGEST_OPTION;
    return piece.split(/(\s+)/).map((word) => (isOption(word) ? html`<span class="whole">${word}</span>` : word));
  });
}

const named = (sign) => `U+${sign.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;

const isLong = (command) => command.length > LONG || command.split("\n").length > LONG_LINES;

function looks(choice) {
  if (choice === "once") return "button";
  return choice === "deny" ? "button deny" : "button small plain";
}
