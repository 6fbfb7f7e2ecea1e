import { Component, createRef, html } from "../html.js";
import { askedIn } from "../transcript.js";
import { Announcer } from "./announcer.js";
import { Ask, AskAnnouncer, AskedElsewhere, AskedOutside } from "./asks.js";
import { Composer } from "./composer.js";
import { Drawer, Sessions } from "./drawer.js";
import { Chevron, Mark, Menu, Plus } from "./icons.js";
import { Badge, Messages, Notice } from "./messages.js";
import { copyCode } from "./prose.js";
import { Scroller } from "./scroller.js";
import { Sheet } from "./sheet.js";
import { Status } from "./status.js";
import { Turn } from "./turn.js";
import { HermesAway } from "./upstream.js";

const NEWS_MS = 8000; // long enough to read a line twice
const IDEAS = ["What can you do?", "Show me tools at work", "A short tour of Markdown"];

export class Chat extends Component {
  scroller = createRef();
  composer = createRef();
  state = { drawer: false, sheet: null };

  #say = (text) => {
    this.props.client.say(text);
    this.scroller.current.follow();
  };

  #drawer = (drawer) => {
    this.setState({ drawer });
    if (drawer) this.props.client.sessions.list();
  };

  /** @param session whose; null: of a new one */
  #sheet = (session) => this.setState({ sheet: { session } });

  #conversation(client) {
    const { asks, talk } = client;
    const { conv, history, items } = talk;
    const { of, loose } = askedIn(items, asks.ofSession(conv.session));
    const empty = !items.length && !history.error && (conv.session === null || history.read);
    return html`
      <${Scroller} handle=${this.scroller} key=${conv.id} label="Conversation"
        first=${items[0]?.id} onClick=${copyCode}>
        <${Earlier} talk=${talk} history=${history} />
        ${empty && html`<${Empty} onIdea=${(idea) => this.composer.current.write(idea)} onName=${() => this.#sheet(null)} />`}
        ${items.map((turn, at) => html`<${Turn} key=${turn.key ?? turn.id} turn=${turn} asked=${of[at]} client=${client} />`)}
        ${loose.map((ask) => html`<${Ask} key=${ask.id} ask=${ask} asks=${asks} />`)}
      </${Scroller}>`;
  }

  #messages(inbox) {
    return html`
      <${Scroller} handle=${this.scroller} key="messages" label="Messages" first=${inbox.all[0]?.id} onClick=${copyCode}>
        <${Messages} inbox=${inbox} />
      </${Scroller}>`;
  }

  render({ client }, { drawer, sheet }) {
    const { asks, inbox, link, talk } = client;
    return html`
      <div class="shell">
        <aside class="side"><header><${Mark} /><strong>Talaria</strong></header><${Sessions} client=${client} onMenu=${this.#sheet} /></aside>
        <div class="chat">
          <header class="top">
            <button type="button" class="tap menu" aria-label=${inbox.unread ? `Conversations (unread messages: ${inbox.unread})` : "Conversations"}
              onClick=${() => this.#drawer(true)}>
              <${Menu} /><${Badge} count=${inbox.unread} />
            </button>
            <div class="heading"><${Title} client=${client} onMenu=${this.#sheet} /><${Status} client=${client} /></div>
            <button type="button" class="tap" aria-label="New conversation" onClick=${() => client.begin()}><${Plus} /></button>
          </header>
          <${Stopped} client=${client} link=${link} />
          <${HermesAway} client=${client} />
          <${AskedElsewhere} client=${client} />
          <${AskedOutside} asks=${asks} />
          <main>
            ${inbox.shown ? this.#messages(inbox) : this.#conversation(client)}
            <${Notice} inbox=${inbox} />
            <${News} client=${client} />
          </main>
          <${Announcer} turn=${talk.latest} />
          <${AskAnnouncer} asks=${asks} />
          ${!inbox.shown && html`
            <${Composer} handle=${this.composer} running=${talk.running} onSay=${this.#say} onStop=${(turn) => client.stop(turn)} />`}
        </div>
        <${Drawer} client=${client} open=${drawer} onClose=${() => this.#drawer(false)} onMenu=${this.#sheet} />
        <${Sheet} client=${client} of=${sheet} onClose=${() => this.setState({ sheet: null })}
          onOpened=${() => this.setState({ sheet: null, drawer: false })} />
      </div>`;
  }
}

/** Of what is on the screen. That of a conversation opens what can be done with it. */
function Title({ client, onMenu }) {
  const { inbox, talk } = client;
  const { session, title } = talk.conv;
  if (inbox.shown) return html`<h1>Messages</h1>`;
  if (session === null) return html`<h1>${title ?? "New conversation"}</h1>`;
  const named = title ?? "Conversation";
  return html`
    <h1>
      <button type="button" aria-haspopup="dialog" onClick=${() => onMenu({ id: session, title: named })}>
        <span>${named}</span><${Chevron} />
      </button>
    </h1>`;
}

function Stopped({ client, link }) {
  if (link.name !== "stopped" || !link.again) return null;
  const act = () => (link.code === 1008 ? location.reload() : client.reconnect());
  return html`<div class="banner">${link.text}<button type="button" class="button small" onClick=${act}>${link.again}</button></div>`;
}

/** A line that goes away by itself. */
class News extends Component {
  componentDidUpdate() {
    const { client } = this.props;
    if (client.news === this.shown) return;
    clearTimeout(this.timer);
    this.shown = client.news;
    if (this.shown) this.timer = setTimeout(() => client.heard(), NEWS_MS);
  }

  componentDidMount() {
    this.componentDidUpdate();
  }

  componentWillUnmount() {
    clearTimeout(this.timer);
  }

  render({ client }) {
    return html`
      <div role="status">
        ${client.news && html`
          <div class="news toast">${client.news}
            <button type="button" class="button small plain" onClick=${() => client.heard()}>OK</button>
          </div>`}
      </div>`;
  }
}

function Earlier({ talk, history }) {
  if (history.error) {
    return html`
      <div class="news">${history.error.message}
        <button type="button" class="button small" onClick=${() => talk.read()}>Try again</button>
      </div>`;
  }
  if (history.loading && !history.list.length) return html`<p class="quiet centre">Reading the conversation …</p>`;
  if (!history.offset) return null;
  return html`<p class="centre"><button type="button" class="button small plain" onClick=${() => talk.earlier()}>Earlier messages</button></p>`;
}

const Empty = ({ onIdea, onName }) => html`
  <div class="empty">
    <span class="badge"><${Mark} size=${56} /></span>
    <h2>Your agent is listening</h2>
    <p>Ask, then put the phone away: the answer waits for you.</p>
    <div class="ideas">
      ${IDEAS.map((idea) => html`<button type="button" onClick=${() => onIdea(idea)}>${idea}</button>`)}
    </div>
    <button type="button" class="button small plain name-first" aria-haspopup="dialog" onClick=${onName}>Name it first</button>
  </div>`;
