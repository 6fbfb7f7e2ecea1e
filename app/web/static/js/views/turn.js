import { html } from "../html.js";
import { isFailed, segment } from "../turns.js";
import { Alert, Chevron, Spark } from "./icons.js";
import { Prose } from "./prose.js";
import { Tool } from "./tool.js";

const LAYERS = {
  relay: "The relay failed",
  upstream: "Hermes could not be used",
  agent: "The agent failed",
  device: "This was not sent",
};
const ENDS = { stopped: "Stopped.", interrupted: "Interrupted: this is what had been said." };

/** What the owner said and what came of it: an exchange of the history or a turn of this page. */
export function Turn({ turn, client }) {
  const { status = "completed", said } = turn;
  return html`
    <section class="turn" data-status=${status}>
      ${said !== null && html`
        <div class="you">
          <h3 class="sr">You said</h3>
          <div class="bubble">${said}</div>
          <${Waiting} turn=${turn} connected=${client.link.name === "open"} />
        </div>`}
      <${Answer} turn=${turn} status=${status} />
      ${ENDS[status] && html`<p class="ending">${ENDS[status]}</p>`}
      ${isFailed(turn) && html`<${Failure} turn=${turn} client=${client} />`}
    </section>`;
}

function Waiting({ turn, connected }) {
  if (turn.status === "sending") {
    return html`<p class="waiting">${connected ? "Sending …" : "Waiting for the connection: it will be sent."}</p>`;
  }
  if (turn.status !== "queued") return null;
  return html`<p class="waiting">${turn.position > 1 ? `Waiting, number ${turn.position} in line` : "Waiting: next in line"}</p>`;
}

function Answer({ turn, status }) {
  const running = status === "running";
  if (!running && !turn.parts.length && !turn.reasoning) return null;
  const last = turn.parts.length - 1;
  return html`
    <div class="answer">
      <h3 class="sr">Answer</h3>
      ${turn.reasoning && html`<${Reasoning} text=${turn.reasoning} />`}
      ${turn.parts.map((part, at) =>
        part.kind === "tool"
          ? html`<${Tool} key=${at} tool=${part} />`
          : html`<${Prose} key=${at} text=${segment(part.text)} streaming=${running && at === last} />`,
      )}
      ${running && turn.parts[last]?.kind !== "text" && html`<${Dots} />`}
    </div>`;
}

const Reasoning = ({ text }) => html`
  <details class="reasoning">
    <summary><${Spark} />Reasoning<${Chevron} /></summary>
    <${Prose} text=${text} streaming=${false} />
  </details>`;

const Dots = () => html`<p class="dots"><span /><span /><span /><span class="sr">Working</span></p>`;

function Failure({ turn, client }) {
  const error = turn.error ?? {};
  const uncertain = turn.status === "uncertain";
  const title = uncertain ? "Nobody knows whether this was done" : (LAYERS[error.layer] ?? "This turn failed");
  const words = error.message ?? (uncertain ? "Look before you send it again." : "");
  return html`
    <div class="failure" role="group" aria-label="Failure">
      <${Alert} />
      <div>
        <p class="failure-title">${title}</p>
        ${words && html`<p>${words}</p>`}
        ${error.code && html`<p class="failure-code">${[error.layer, error.code].filter(Boolean).join(" · ")}</p>`}
        ${turn.said !== null && html`
          <div class="failure-actions">
            <button type="button" class="button small" onClick=${() => client.retry(turn)}>
              ${uncertain ? "Send again" : "Try again"}
            </button>
            <button type="button" class="button small plain" onClick=${() => client.dismiss(turn)}>Dismiss</button>
          </div>`}
      </div>
    </div>`;
}
