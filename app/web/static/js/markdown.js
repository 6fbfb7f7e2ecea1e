// Markdown of an agent as safe HTML, block by block: while an answer streams only its last block changes.
//
// An agent repeats what it read on the web, so its text is a stranger's: raw HTML is shown as text, pictures of
// other hosts become links (nothing is fetched from anybody), and DOMPurify looks over what is left.
import DOMPurify from "../vendor/dompurify/purify.es.mjs";
import { Marked, Renderer } from "../vendor/marked/marked.esm.js";

const SAFE_LINK = /^(?:https?:|mailto:|tel:)/i;
const SAFE_PICTURE = /^data:image\/(?:png|jpeg|gif|webp);base64,/i;
const PURIFY = {
  USE_PROFILES: { html: true },
  ADD_ATTR: ["target"],
  FORBID_ATTR: ["style", "id", "name"],
  FORBID_TAGS: ["style", "form", "iframe", "object", "textarea", "select"],
  RETURN_TRUSTED_TYPE: true, // the policy lets nothing else become HTML
};

const escaped = (text) =>
  text.replace(/[&<>"']/g, (sign) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" })[sign]);

const link = (href, inner) =>
  `<a href="${escaped(href)}" target="_blank" rel="noopener noreferrer nofollow">${inner}</a>`;

const renderer = {
  html({ text }) {
    return escaped(text);
  },
  link({ href, tokens }) {
    const inner = this.parser.parseInline(tokens);
    return SAFE_LINK.test(href) ? link(href, inner) : inner;
  },
  image({ href, text }) {
    if (SAFE_PICTURE.test(href)) return `<img src="${escaped(href)}" alt="${escaped(text)}">`;
    const inner = escaped(text || href);
    return SAFE_LINK.test(href) ? link(href, inner) : inner;
  },
  code({ text, lang }) {
    const language = escaped((lang ?? "").split(/\s/, 1)[0]);
    return (
      `<div class="code"><div class="code-bar"><span>${language || "text"}</span>` +
      `<button type="button" data-copy>Copy</button></div>` +
      `<pre tabindex="0"><code>${escaped(text)}\n</code></pre></div>`
    );
  },
  table(token) {
    const made = Renderer.prototype.table.call(this, token);
    return `<div class="table" role="region" aria-label="Table" tabindex="0">${made}</div>`;
  },
  checkbox({ checked }) {
    return checked ? "☑ " : "☐ ";
  },
};

const marked = new Marked({ gfm: true, breaks: true, renderer });

/** The blocks of a text: [{raw, token}]. The same `raw` makes the same HTML. */
export function blocks(text) {
  const tokens = marked.lexer(text);
  return tokens.filter((token) => token.type !== "space" && token.type !== "def").map((token) => ({ raw: token.raw, token }));
}

/** HTML of one block, safe to insert. */
export function blockHtml({ token }) {
  return DOMPurify.sanitize(marked.parser([token]), PURIFY);
}
