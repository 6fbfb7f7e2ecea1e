// Starts the page: takes a pairing code out of the address, opens the link, draws at most once a frame.
import { Client } from "./client.js";
import { instanceId } from "./device.js";
import { html, render } from "./html.js";
import { App } from "./views/app.js";

let due = false;

const url = `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/ws`;
const client = new Client({ url, instance: await instanceId(), changed });
takeOffer();

addEventListener("hashchange", () => {
  takeOffer();
  changed();
});
window.visualViewport?.addEventListener("resize", fit);
fit();
draw();
client.start();

/** Code and fingerprint are in the fragment, which no server sees; they leave the address at once. Until the code is
 *  used the page's own entry of the history has them, for a page that is loaded again. */
function takeOffer() {
  const found = new URLSearchParams(location.hash.slice(1));
  const offer = found.get("code") ? { code: found.get("code").toUpperCase(), fingerprint: found.get("fp") } : history.state;
  if (location.hash) history.replaceState(offer, "", location.pathname);
  if (offer) Object.assign(client, offer);
}

function changed() {
  if (due) return;
  due = true;
  requestAnimationFrame(() => {
    due = false;
    draw();
  });
}

function draw() {
  if (client.paired && !client.code && (history.state || location.pathname !== "/")) history.replaceState(null, "", "/");
  render(html`<${App} client=${client} />`, document.getElementById("app"));
}

/** Where the keyboard covers the page instead of shrinking it (iOS), make room for it. */
function fit() {
  const { visualViewport } = window;
  if (!visualViewport || visualViewport.scale !== 1) return;
  document.documentElement.style.setProperty("--height", `${visualViewport.height}px`);
  if (visualViewport.offsetTop) scrollTo(0, 0);
}
