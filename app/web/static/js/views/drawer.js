import { Component, createRef, html } from "../html.js";
import { AskBadge } from "./asks.js";
import { Close, Mark, More, Plus } from "./icons.js";
import { Badge } from "./messages.js";
import { DashboardAway } from "./upstream.js";

const PUSH = { ok: "Push: working", failing: "Push: failing", none: "Push: not set up", off: "Push: switched off" };

/** Earlier conversations. Beside the conversation where there is room, else in a dialog that the menu opens. */
export function Sessions({ client, onChosen, onMenu }) {
  const { items, more, loading, error } = client.sessions;
  const { inbox } = client;
  const push = PUSH[client.hello?.push?.state];
  const choose = (act) => () => {
    act();
    onChosen?.();
  };
  return html`
    <nav class="sessions" aria-label="Conversations">
      <button type="button" class="button new" onClick=${choose(() => client.begin())}><${Plus} />New conversation</button>
      <button type="button" class="to-messages" aria-current=${inbox.shown ? "page" : null} onClick=${choose(() => inbox.open())}>
        Messages<${Badge} count=${inbox.unread} />
      </button>
      <ul>
        ${items.map((session) => html`
          <li key=${session.id}>
            <button type="button" aria-current=${!inbox.shown && session.id === client.talk.session ? "page" : null}
              onClick=${choose(() => client.open(session))}>
              <span class="session-title">${session.title}</span>
              <${AskBadge} client=${client} session=${session.id} />
              <span class="session-time">${ago(session.at)}</span>
            </button>
            <button type="button" class="tap" aria-label="Rename, fork or delete" aria-haspopup="dialog"
              onClick=${() => onMenu(session)}><${More} /></button>
          </li>`)}
      </ul>
      ${!items.length && !loading && !error && html`<p class="quiet">Conversations will be listed here.</p>`}
      ${error && html`<p class="quiet">${error.message}</p>`}
      ${more && html`<button type="button" class="button small plain" onClick=${() => client.sessions.list({ more: true })}>More</button>`}
    </nav>
    <${DashboardAway} client=${client} />
    ${push && html`<p class="quiet push-state">${push}</p>`}`;
}

export class Drawer extends Component {
  dialog = createRef();

  componentDidUpdate() {
    const { current } = this.dialog;
    if (this.props.open && !current.open) current.showModal();
    if (!this.props.open && current.open) current.close();
  }

  render({ client, onClose, onMenu }) {
    const outside = (event) => event.target === event.currentTarget && onClose();
    return html`
      <dialog class="drawer" ref=${this.dialog} aria-label="Conversations" onClose=${onClose} onClick=${outside}>
        <div class="drawer-inner">
          <header><${Mark} /><strong>Talaria</strong>
            <button type="button" class="tap" aria-label="Close" onClick=${onClose}><${Close} /></button>
          </header>
          <${Sessions} client=${client} onChosen=${onClose} onMenu=${onMenu} />
        </div>
      </dialog>`;
  }
}

function ago(at) {
  if (!at) return "";
  const then = typeof at === "number" ? at * 1000 : Date.parse(at);
  const minutes = Math.round((Date.now() - then) / 60_000);
  if (minutes < 1) return "now";
  if (minutes < 60) return `${minutes} min`;
  if (minutes < 24 * 60) return `${Math.round(minutes / 60)} h`;
  return new Date(then).toLocaleDateString(undefined, { day: "numeric", month: "short" });
}
