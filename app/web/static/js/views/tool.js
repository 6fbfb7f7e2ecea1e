import { html } from "../html.js";
import { Check, Chevron, Cross, Dash } from "./icons.js";

const LONGEST = 20_000; // characters of a result that are shown; the rest is in the agent's own history
const SAID = { running: "running", completed: "done", failed: "failed", ended: "ended" };

export function Tool({ tool }) {
  const { state, name, duration, error } = tool;
  const preview = tool.preview ?? oneLine(tool.args);
  return html`
    <details class="tool" data-state=${state}>
      <summary>
        <span class="tool-state">${sign(state)}<span class="sr">${SAID[state]}</span></span>
        <span class="tool-name">${name}</span>
        <span class="tool-preview">${preview}</span>
        <span class="tool-time">${duration !== null ? seconds(duration) : ""}</span>
        <${Chevron} />
      </summary>
      <div class="tool-body">
        ${error && html`<${Field} label="Error" value=${error} />`}
        ${tool.args !== null && html`<${Field} label="Arguments" value=${tool.args} />`}
        ${tool.result !== null && html`<${Field} label="Result" value=${tool.result} />`}
        ${tool.args === null && tool.result === null && !error && html`<p class="quiet">The agent sent no details.</p>`}
      </div>
    </details>`;
}

const Field = ({ label, value }) => html`
  <div class="field"><span>${label}</span><pre tabindex="0">${cut(pretty(value))}</pre></div>`;

function sign(state) {
  if (state === "running") return html`<span class="spinner" />`;
  return state === "completed" ? html`<${Check} />` : state === "failed" ? html`<${Cross} />` : html`<${Dash} />`;
}

/** Read by people: fields on lines of their own, texts as they are. */
function pretty(value) {
  const data = typeof value === "string" ? parsed(value) : value;
  if (typeof data === "string") return data;
  if (Array.isArray(data) || data === null || typeof data !== "object") return JSON.stringify(data, null, 2);
  return Object.entries(data).map(([name, it]) => `${name}: ${field(it)}`).join("\n");
}

function field(value) {
  if (typeof value !== "string") return JSON.stringify(value, null, 2);
  return value.includes("\n") ? `\n${value}` : value;
}

function parsed(text) {
  try {
    return /^\s*[[{]/.test(text) ? JSON.parse(text) : text;
  } catch {
    return text;
  }
}

function cut(text) {
  return text.length > LONGEST ? `${text.slice(0, LONGEST)}\n… ${text.length - LONGEST} more characters` : text;
}

/** What a call of the history was about: its first argument that is a text. */
function oneLine(args) {
  const first = args && typeof args === "object" ? Object.values(args).find((value) => typeof value === "string") : args;
  return typeof first === "string" ? first.split("\n", 1)[0].slice(0, 120) : "";
}

export function seconds(value) {
  if (value < 60) return `${value < 10 ? value.toFixed(1) : Math.round(value)} s`;
  return `${Math.floor(value / 60)} min ${Math.round(value % 60)} s`;
}
