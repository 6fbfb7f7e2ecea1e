import { Component, html } from "../html.js";
import { Prose } from "./prose.js";

const NOTICE_MS = 8000;
const SOURCES = { cron: "Scheduled", send_message: "Agent", reply: "Reply", script: "Script" };

/** What was sent to this device, newest last. */
export function Messages({ inbox }) {
  if (!inbox.all.length) {
    return html`<div class="empty"><h2>No messages</h2><p>What is sent to this device will be listed here.</p></div>`;
  }
  return inbox.all.map((message) => html`<${Message} key=${message.id} message=${message} inbox=${inbox} />`);
}

function Message({ message, inbox }) {
  const { id, title, text, source, at, truncated, fetching, error } = message;
  return html`
    <article class="message">
      <header>
        ${title && html`<h2>${title}</h2>`}
        <p class="quiet">${SOURCES[source] ?? source} · <time datetime=${new Date(at).toISOString()}>${when(at)}</time></p>
      </header>
      <${Prose} text=${text} />
      ${truncated && html`
        <p class="message-cut quiet">${fetching ? "Fetching the rest …" : error ?? "This is only the beginning."}
          ${!fetching && html`
            <button type="button" class="button small plain" onClick=${() => inbox.complete(id)}>Show all</button>`}
        </p>`}
    </article>`;
}

/** Says that something arrived, and goes away by itself. */
export class Notice extends Component {
  componentDidUpdate() {
    const { inbox } = this.props;
    if (inbox.news?.id === this.told) return;
    clearTimeout(this.timer);
    this.told = inbox.news?.id;
    if (this.told) this.timer = setTimeout(() => inbox.heard(), NOTICE_MS);
  }

  componentDidMount() {
    this.componentDidUpdate();
  }

  componentWillUnmount() {
    clearTimeout(this.timer);
  }

  render({ inbox }) {
    const { news, unread } = inbox;
    return html`
      <div class="notice-place" aria-live="polite">
        ${news && html`
          <div class="news notice"><span>${unread > 1 ? `${unread} new messages` : `New message: ${about(news)}`}</span>
            <button type="button" class="button small plain" onClick=${() => inbox.open()}>Show</button>
          </div>`}
      </div>`;
  }
}

export const Badge = ({ count }) =>
  count > 0 && html`<span class="count">${count}<span class="sr"> unread</span></span>`;

const about = ({ title, text }) => title ?? text.trim().split("\n", 1)[0].slice(0, 80);

function when(at) {
  const then = new Date(at);
  const time = { hour: "2-digit", minute: "2-digit" };
  const isToday = then.toDateString() === new Date().toDateString();
  return isToday ? then.toLocaleTimeString(undefined, time) : then.toLocaleString(undefined, { day: "numeric", month: "short", ...time });
}
