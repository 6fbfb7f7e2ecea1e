// What the owner has to know of the ways to Hermes, in the relay's own words.
import { html } from "../html.js";

/** Over the conversation: without its API server there are no conversations. */
export function HermesAway({ client }) {
  const api = client.hello?.upstream?.api;
  if (client.link.name !== "open" || !api?.message) return null;
  return html`<div class="banner" role="status">${sentence(api.message)}</div>`;
}

/** Under the list: what the dashboard's absence costs, and how to get it. Whoever has switched it off knows. */
export function DashboardAway({ client }) {
  const dashboard = client.hello?.upstream?.dashboard;
  if (!dashboard?.message || dashboard.state === "up") return null;
  return html`
    <details class="quiet foot">
      <summary>Not all that the agent asks can reach you</summary>
      <p>
        It asks its questions, and shows its thoughts as they come, over Hermes' dashboard; approvals too, unless
        TALARIA_HERMES_ASK_APPROVALS is set. ${sentence(dashboard.message)}
      </p>
    </details>`;
}

const sentence = (text) => `${text[0].toUpperCase()}${text.slice(1)}${/[.!?]$/.test(text) ? "" : "."}`;
