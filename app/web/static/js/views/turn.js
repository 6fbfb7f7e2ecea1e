import { html } from "../html.js";
import { isOpen } from "../asks.js";
import { isFailed } from "../turns.js";
import { placeAsk, segment } from "../parts.js";
import { Ask } from "./asks.js";
import { Failure } from "./failure.js";
import { Prose } from "./prose.js";
import { Thought } from "./thought.js";
import { Tool } from "./tool.js";

const ENDS = { stopped: "Stopped.", interrupted: "Interrupted: this is what had been said." };

/** What the owner said and what came of it: an exchange of the history or a turn of this page. */
export function Turn({ turn, asked, client }) {
  const { status = "completed", said } = turn;
  return html`
    <section class="turn" data-status=${status}>
      ${said !== null && html`
        <div class="you">
          <h3 class="sr">You said</h3>
          <div class="bubble">${said}</div>
          <${Waiting} turn=${turn} connected=${client.link.name === "open"} />
        </div>`}
      <${Answer} turn=${turn} status=${status} asked=${asked} asks=${client.asks} />
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

function Answer({ turn, status, asked, asks }) {
  const parts = asked.reduce((all, ask) => placeAsk(all, ask.id, ask.after), turn.parts);
  const running = status === "running";
  if (!running && !parts.length) return null;
  const last = parts.at(-1);
  const streams = running && (last?.kind === "text" || last?.kind === "thought");
  const one = (part, at) => {
    const isLast = running && at === parts.length - 1;
    switch (part.kind) {
      case "tool":
        return html`<${Tool} key=${at} tool=${part} />`;
      case "thought":
        return html`<${Thought} key=${at} text=${part.text} thinking=${isLast} />`;
      case "ask":
        return asked.filter(({ id }) => id === part.id).map((ask) => html`<${Ask} key=${ask.id} ask=${ask} asks=${asks} />`);
      default:
        return html`<${Prose} key=${at} text=${segment(part.text)} streaming=${isLast && !part.aside} />`;
    }
  };
  return html`
    <div class="answer">
      <h3 class="sr">Answer</h3>
      ${parts.map(one)}
      ${running && !streams && !asked.some(isOpen) && html`<${Dots} />`}
      ${running && html`<${Held} turn=${turn} />`}
    </div>`;
}

/** Why nothing happens, or will not go on happening. */
function Held({ turn }) {
  const words = turn.stopping ? "Stopping …" : turn.held && (turn.held.message ?? "The agent has not begun yet.");
  return html`<p class="held" role="status">${words}</p>`;
}

const Dots = () => html`<p class="dots"><span /><span /><span /><span class="sr">Working</span></p>`;
