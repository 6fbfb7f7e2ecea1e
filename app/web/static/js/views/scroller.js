import { Component, createRef, html } from "../html.js";
import { Down } from "./icons.js";

const NEAR = 64; // px from the end that still count as being there

/** Scrolls with what is said, unless the reader has scrolled away to read. `first` names what stands at the top. */
export class Scroller extends Component {
  box = createRef();
  inner = createRef();
  state = { away: false };

  componentDidMount() {
    this.props.handle.current = this; // a ref would be a prop like any other
    this.stick = true;
    this.observer = new ResizeObserver(() => this.stick && this.#toEnd());
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
    this.stick = true;
    this.#toEnd();
  }

  #toEnd() {
    const { current } = this.box;
    current.scrollTop = current.scrollHeight;
  }

  #scrolled = () => {
    const { scrollTop, scrollHeight, clientHeight } = this.box.current;
    this.stick = scrollHeight - scrollTop - clientHeight < NEAR;
    if (this.state.away === this.stick) this.setState({ away: !this.stick });
  };

  render({ children, label, onClick }, { away }) {
    return html`
      <div class="scroller">
        <div class="scroll" ref=${this.box} onScroll=${this.#scrolled} tabindex="0" role="log" aria-live="off" aria-label=${label}
          onClick=${onClick}>
          <div class="column" ref=${this.inner}>${children}</div>
        </div>
        ${away && html`
          <button type="button" class="round to-end" aria-label="To the newest message" onClick=${() => this.follow()}>
            <${Down} />
          </button>`}
      </div>`;
  }
}
