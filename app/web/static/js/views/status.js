import { Component, html } from "../html.js";

const HERMES = {
  down: ["warn", "Connected, but Hermes is away"],
  auth_required: ["warn", "Connected, but Hermes lets nobody in"],
  off: ["warn", "Connected, but to no Hermes"],
};

/** One line that says how things stand. It always takes its place, so nothing jumps. */
export class Status extends Component {
  componentDidUpdate() {
    clearTimeout(this.timer);
    if (this.props.client.link.name === "waiting") this.timer = setTimeout(() => this.forceUpdate(), 500);
  }

  componentWillUnmount() {
    clearTimeout(this.timer);
  }

  render({ client }) {
    const [tone, text, count] = line(client);
    return html`
      <p class="status" data-tone=${tone}>
        <span class="dot" aria-hidden="true" />
        <span role="status">${text}</span>${count && html`<span aria-hidden="true">${count}</span>`}
      </p>`;
  }
}

/** [tone, what is announced, what only ticks] */
function line({ link, hello }) {
  switch (link.name) {
    case "open":
      return HERMES[hello?.upstream?.api?.state] ?? ["good", "Connected"];
    case "pending":
      return ["busy", `Confirm ${link.confirm} on the server`];
    case "waiting": {
      const left = Math.max(0, Math.ceil((link.until - Date.now()) / 1000));
      return ["warn", navigator.onLine ? "Reconnecting" : "Offline, reconnecting", ` in ${left} s`];
    }
    case "stopped":
      return ["bad", link.text];
    default:
      return ["busy", "Connecting …"];
  }
}
