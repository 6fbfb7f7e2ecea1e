import { Component, createRef, html } from "../html.js";
import { Down, Up } from "./icons.js";

const OPEN = ".ask:not([data-waiting])";
const ROOM = 12; // px above a card
const NEAR = 64; // px from the end that still count as being there

/** Scrolls with what is said, unless the reader has scrolled away to read. `first` names what stands at the top. */
export class Scroller extends Component {
  box = createRef();
  inner = createRef();
  state = { away: false, asks: null };

  componentDidMount() {
    this.props.handle.current = this; // a ref would be a prop like any other
    this.stick = true;
    this.observer = new ResizeObserver(() => {
      if (this.stick) this.#toEnd();
      this.#look();
    });
    this.observer.observe(this.inner.current);
    this.observer.observe(this.box.current);
  }

  componentWillUnmount() {
    this.observer.disconnect();
  }

  getSnapshotBeforeUpdate() {
    return this.box.current?.scrollHeight ?? 0;
  }

  /** What comes in above what is being read must not push it down. */
  componentDidUpdate({ first }, _, height) {
    if (first === this.props.first || this.stick) return;
    const { current } = this.box;
    current.scrollTop += current.scrollHeight - height;
  }

  /** The reader wants to see the end, whatever was read before. */
  follow() {
    this.past = false;
    this.stick = true;
    this.#toEnd();
  }

  #toEnd() {
    this.box.current.scrollTop = this.#end();
  }

  /** Where the end is seen; not past what the reader has to answer. */
  #end() {
    const { scrollTop, scrollHeight, clientHeight } = this.box.current;
    const ask = this.#asking();
    const end = scrollHeight - clientHeight;
    return ask && !this.past ? Math.min(end, scrollTop + ask.top - ROOM) : end;
  }

  /** Where the first open card is, relative to what is seen; null: there is none. */
  #asking() {
    const { current } = this.box;
    const card = current.querySelector(OPEN)?.getBoundingClientRect();
    const { top, height } = current.getBoundingClientRect();
    return card ? { top: card.top - top, above: card.bottom < top + NEAR, below: card.top > top + height - NEAR } : null;
  }

  #scrolled = () => {
    const { scrollTop, scrollHeight, clientHeight } = this.box.current;
    // Who has gone past what is to be answered, to the end, wants to stay there.
    this.past = this.#asking()?.top < 0 && scrollHeight - clientHeight - scrollTop < NEAR;
    this.stick = Math.abs(this.#end() - scrollTop) < NEAR;
    this.#look();
  };

  #look() {
    const ask = this.#asking();
    const asks = ask?.above ? "above" : ask?.below ? "below" : null;
    const away = !this.stick && this.box.current.scrollTop < this.#end();
    if (away !== this.state.away || asks !== this.state.asks) this.setState({ away, asks });
  }

  render({ children, label, onClick }, { away, asks }) {
    return html`
      <div class="scroller">
        <div class="scroll" ref=${this.box} onScroll=${this.#scrolled} tabindex="0" role="log" aria-live="off" aria-label=${label}
          onClick=${onClick}>
          <div class="column" ref=${this.inner}>${children}</div>
        </div>
        ${(away || asks) && html`
          <button type="button" class=${asks ? "button small to-end" : "round to-end"} aria-label=${asks ? null : "To the newest message"}
            onClick=${() => this.follow()}>
            ${asks === "above" ? html`<${Up} />` : html`<${Down} />`}${asks && "The agent asks"}
          </button>`}
      </div>`;
  }
}
