// Starts the page: takes a pairing code out of the address, opens the link, draws at most once a frame.
import { Client } from "./client.js";
import { instanceId } from "./device.js";
import { html, render } from "./html.js";
import { App } from "./views/app.js";

const code = takeCode();
let due = false;

const url = `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/ws`;
const client = new Client({ url, instance: await instanceId(), changed });
client.code = code;

addEventListener("hashchange", () => {
  client.code = takeCode() ?? client.code;
  changed();
});
window.visualViewport?.addEventListener("resize", fit);
fit();
draw();
client.start();

/** The code is in the fragment, which no server sees; it leaves the address and the history at once. */
function takeCode() {
  const found = new URLSearchParams(location.hash.slice(1)).get("code");
  if (location.hash) history.replaceState(null, "", location.pathname);
  return found ? found.toUpperCase() : null;
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
  if (client.paired && !client.code && location.pathname !== "/") history.replaceState(null, "", "/");
  render(html`<${App} client=${client} />`, document.getElementById("app"));
}

/** Where the keyboard covers the page instead of shrinking it (iOS), make room for it. */
function fit() {
  const { visualViewport } = window;
  if (!visualViewport || visualViewport.scale !== 1) return;
  document.documentElement.style.setProperty("--height", `${visualViewport.height}px`);
  if (visualViewport.offsetTop) scrollTo(0, 0);
}
