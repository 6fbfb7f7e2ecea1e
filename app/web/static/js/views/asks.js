// Where the agent asks, wherever the owner is: in the conversation, over another one, and aloud.
import { isOutside } from "../asks.js";
import { Component, html } from "../html.js";
import { Approval } from "./approval.js";
import { Hand } from "./icons.js";
import { Question } from "./question.js";

const CARDS = { approval: Approval, question: Question };
const WANTS = { approval: "needs your approval", question: "asks you something" };

export const Ask = ({ ask, asks }) => html`<${CARDS[ask.kind]} ask=${ask} asks=${asks} />`;

/** What is asked outside every conversation: by a tool that reaches for a phone, or in a chat of Hermes' gateway. */
export const AskedOutside = ({ asks }) => html`
  ${asks.outside.map((ask) => html`<div class="asked-outside" key=${ask.id}><${Ask} ask=${ask} asks=${asks} /></div>`)}`;

/** Something is asked in a conversation that is not on the screen. */
export function AskedElsewhere({ client }) {
  const { asks, inbox, sessions, talk } = client;
  const elsewhere = ({ session, isWaiting }) => !isWaiting && (inbox.shown || session !== talk.session);
  const ask = asks.open.find((one) => !isOutside(one) && elsewhere(one));
  if (!ask) return null;
  const title = ask.session === talk.session ? talk.conv.title : sessions.find(ask.session)?.title;
  const show = () => client.open(sessions.find(ask.session) ?? { id: ask.session, title: "Conversation" });
  return html`
    <div class="banner asked" key=${ask.id}>
      <${Hand} />
      <p><strong>${title ?? "Another conversation"}</strong> ${WANTS[ask.kind]}</p>
      <button type="button" class="button small" onClick=${show}>Show</button>
    </div>`;
}

/** Marks a conversation of the list in which something is asked. */
export const AskBadge = ({ client, session }) =>
  client.asks.isAskedIn(session) && html`<span class="count">asks</span>`;

/** Says aloud, once each, that something is asked. */
export class AskAnnouncer extends Component {
  state = { text: "" };
  told = new Set();

  componentDidMount() {
    this.componentDidUpdate();
  }

  componentDidUpdate() {
    const fresh = this.props.asks.open.filter((ask) => !ask.isWaiting && !this.told.has(ask.id));
    if (!fresh.length) return;
    for (const { id } of fresh) this.told.add(id);
    this.setState({ text: fresh.map(aloud).join("\n") });
  }

  render(_, { text }) {
    return html`<div class="sr" aria-live="assertive">${text}</div>`;
  }
}

function aloud({ kind, text, description }) {
  if (kind === "question") return `The agent asks: ${text}`;
  return `The agent needs your approval: ${description ?? text}`;
}
