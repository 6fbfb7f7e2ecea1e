import { html } from "../html.js";
import { Chat } from "./chat.js";
import { Pair } from "./pair.js";

export function App({ client }) {
  const pairing = client.code || client.offer || !client.paired;
  return pairing ? html`<${Pair} client=${client} code=${client.code} />` : html`<${Chat} client=${client} />`;
}
