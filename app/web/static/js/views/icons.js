import { html } from "../html.js";

const icon = (paths, size = 20) => html`
  <svg class="icon" width=${size} height=${size} viewBox="0 0 24 24" fill="none" stroke="currentColor"
    stroke-width="1.9" stroke-linecap="round" stroke-linejoin="round" aria-hidden="true" focusable="false">${paths}</svg>`;

export const Menu = () => icon(html`<path d="M4 7h16M4 12h11M4 17h16" />`);
export const Plus = () => icon(html`<path d="M12 5v14M5 12h14" />`);
export const Close = () => icon(html`<path d="M6 6l12 12M18 6L6 18" />`);
export const Up = () => icon(html`<path d="M12 19V5M6 11l6-6 6 6" />`);
export const Down = () => icon(html`<path d="M12 5v14M6 13l6 6 6-6" />`);
export const Halt = () => icon(html`<rect x="7" y="7" width="10" height="10" rx="2" fill="currentColor" stroke="none" />`);
export const Chevron = () => icon(html`<path d="M9 6l6 6-6 6" />`, 16);
export const Check = () => icon(html`<path d="M5 12.5l4.5 4.5L19 7.5" />`, 16);
export const Cross = () => icon(html`<path d="M7 7l10 10M17 7L7 17" />`, 16);
export const Dash = () => icon(html`<path d="M6 12h12" />`, 16);
export const Spark = () => icon(html`<path d="M12 4v4M12 16v4M4 12h4M16 12h4M7 7l2 2M15 15l2 2M17 7l-2 2M9 15l-2 2" />`, 16);
export const Hand = () => icon(html`<path d="M12 3l7.5 2.8v5.4c0 4.5-3 8-7.5 9.8-4.5-1.8-7.5-5.3-7.5-9.8V5.8zM12 8v4.5M12 15.6v.1" />`);
export const Asks = () => icon(html`<path d="M4 5h16v11h-8l-4.5 4v-4H4zM9.8 9.2a2.2 2.2 0 1 1 3 2c-.6.3-.8.6-.8 1.2M12 14v.1" />`);
export const More = () => icon(html`<path d="M5.5 12h.01M12 12h.01M18.5 12h.01" stroke-width="3" />`);
export const Pencil = () => icon(html`<path d="M4 20l1-4L16.5 4.5l3 3L8 19zM14 7l3 3" />`);
export const Fork = () => icon(html`<path d="M6 20V4M6 15c0-4 12-2 12-8M18 7V4M15 7l3-3 3 3" />`);
export const Bin = () => icon(html`<path d="M4 7h16M9 7V4h6v3M6.5 7l1 13h9l1-13M10 11v5M14 11v5" />`);
export const Alert = () => icon(html`<path d="M12 8v5M12 16.5v.1M12 3.5l9 16H3z" />`);

/** A winged sandal; the same lines as icons/talaria.svg. */
export const Mark = ({ size = 28 }) => html`
  <svg class="mark" width=${size} height=${size} viewBox="4 6 55 52" fill="none" stroke="currentColor" stroke-width="3.4"
    stroke-linecap="round" stroke-linejoin="round" aria-hidden="true" focusable="false">
    <g transform="translate(0 2)">
      <path d="M53 45c-6 3.6-14 4.6-21 3-4.6-1-7.5-3.5-9-7.5" />
      <path d="M53 45c0-3-2.5-4.6-6-5.2-4.5-.8-8-3-11-6.8" />
      <path d="M36 33c-3 5-8 7.8-13 7.5" />
      <path d="M23 40.5C16 39 10.5 34 9 26c5 2.5 9.5 4 14 4.5" />
      <path d="M23 30.5C16.5 27 13 22 12.5 15.5 17 19.5 22 22.5 27.5 25" />
      <path d="M27.5 25c-4-4-5.5-8.5-4.5-13.5 3.5 6.5 8 10.5 13 12.5v9" />
    </g>
  </svg>`;
