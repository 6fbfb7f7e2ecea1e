import { Component, html } from "../html.js";
import { blockHtml, blocks } from "../markdown.js";

/** One block of Markdown. Drawn again only when its source changes, so that a selection above the end stays. */
class Block extends Component {
  shouldComponentUpdate({ block }) {
    return block.raw !== this.props.block.raw;
  }

  render({ block }) {
    return html`<div class="block" dangerouslySetInnerHTML=${{ __html: blockHtml(block) }} />`;
  }
}

export class Prose extends Component {
  shouldComponentUpdate({ text, streaming }) {
    return text !== this.props.text || streaming !== this.props.streaming;
  }

  render({ text, streaming }) {
    const list = blocks(text);
    return html`
      <div class=${streaming ? "prose streaming" : "prose"}>
        ${list.map((block, at) => html`<${Block} key=${at} block=${block} />`)}
      </div>`;
  }
}

/** Copies the code beside the button that was pressed; one listener for all blocks. */
export async function copyCode(event) {
  const button = event.target.closest?.("button[data-copy]");
  if (!button) return;
  const code = button.closest(".code").querySelector("code").textContent.replace(/\n$/, "");
  try {
    await navigator.clipboard.writeText(code);
    button.textContent = "Copied";
  } catch {
    button.textContent = "Not allowed";
  }
  setTimeout(() => (button.textContent = "Copy"), 1500);
}
