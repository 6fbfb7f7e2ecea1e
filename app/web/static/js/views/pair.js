import { deviceName, formFactor } from "../device.js";
import { Component, createRef, html } from "../html.js";
import { Mark } from "./icons.js";

const KIND = { phone: "phone", tablet: "tablet", desktop: "computer" }[formFactor()];
const CODE = /^[A-Z0-9]{8}$/;

/** How a browser becomes a paired device. The code came by link, or is typed. */
export class Pair extends Component {
  first = createRef();
  state = { code: this.props.code ?? "", name: deviceName() };

  componentDidMount() {
    this.first.current?.focus({ preventScroll: true });
  }

  componentDidUpdate({ code }) {
    if (code !== this.props.code && this.props.code) this.setState({ code: this.props.code });
  }

  #pair = (event) => {
    event.preventDefault();
    const { code, name } = this.state;
    if (CODE.test(code)) this.props.client.pair(code, name.trim() || deviceName());
  };

  render({ client, code: linked }, { code, name }) {
    const { link, refusal, offer } = client;
    const typed = !linked || refusal;
    const busy = Boolean(offer) || client.checking;
    return html`
      <main class="pair">
        <form class="card" onSubmit=${this.#pair}>
          <span class="badge"><${Mark} size=${44} /></span>
          <h1>Pair this ${KIND}</h1>
          <p class="lead">
            It will be able to talk to your agent, and to use what else the person who made the code allowed. You can take
            that back at any time: <code>talaria devices</code>.
          </p>
          ${typed && html`
            <label for="code">Pairing code</label>
            <input id="code" class="code-input" ref=${this.first} value=${code} maxlength="8" required
              autocomplete="one-time-code" autocapitalize="characters" spellcheck=${false} placeholder="ABCD1234"
              aria-describedby="code-help" onInput=${(event) => this.setState({ code: clean(event.target) })} />
            <p id="code-help" class="help">Run <code>talaria pair</code> on the server to get one.</p>`}
          <label for="name">Name of this device</label>
          <input id="name" value=${name} maxlength="120" autocomplete="off"
            onInput=${(event) => this.setState({ name: event.target.value })} />
          <p class="refusal" role="alert">${refusal ?? said(link, busy)}</p>
          <button type="submit" class="button" disabled=${busy || !CODE.test(code)}>
            ${busy ? "Pairing …" : `Pair this ${KIND}`}
          </button>
          ${client.paired && html`
            <button type="button" class="button plain keep" onClick=${() => client.keepPairing()}>Keep the present pairing</button>`}
        </form>
      </main>`;
  }
}

function said(link, busy) {
  if (!busy) return "";
  if (link.name === "pending") return `Confirm ${link.confirm} on the server.`;
  return link.name === "waiting" ? "The relay cannot be reached; trying again." : "";
}

function clean(input) {
  return (input.value = input.value.toUpperCase().replace(/[^A-Z0-9]/g, ""));
}
