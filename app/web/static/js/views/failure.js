import { html } from "../html.js";
import { Alert } from "./icons.js";

const LAYERS = {
  relay: "The relay failed",
  upstream: "Hermes could not be used",
  agent: "The agent failed",
  device: "This was not sent",
};
// What the owner can do, where the relay's own words do not say it.
const ADVICE = {
  upstream_refused: "The same message will be refused again. Hermes' log says more.",
  upstream_failed: "Hermes' log says more.",
  upstream_invalid: "The relay may be too old for this Hermes: look for an update.",
  upstream_insecure: "Give the relay an https address of Hermes, or one on its own host.",
  upstream_untrusted: "For an authority of your own, set SSL_CERT_FILE where the relay runs.",
  upstream_differs: "Both addresses of Hermes in the relay's settings have to lead to the same one.",
  upstream_unsupported: "A newer Hermes may offer it.",
  upstream_stream_broken: "Look at the conversation before you send it again: the agent may have gone on.",
  session_not_found: "It may have been deleted: begin a new conversation.",
  agent_failed: "Hermes' log may say more.",
  model_failed: "Look at the model that Hermes uses: its address, its key, its limits.",
};

/** A turn that failed: whose fault, why, and what the owner can do. */
export function Failure({ turn, client }) {
  const error = turn.error ?? {};
  const uncertain = turn.status === "uncertain";
  const title = uncertain ? "Nobody knows whether this was done" : (LAYERS[error.layer] ?? "This turn failed");
  const words = error.message ?? (uncertain ? "Look before you send it again." : "");
  return html`
    <div class="failure" role="group" aria-label="Failure">
      <${Alert} />
      <div>
        <p class="failure-title">${title}</p>
        ${words && html`<p>${words}</p>`}
        ${ADVICE[error.code] && html`<p>${ADVICE[error.code]}</p>`}
        ${error.code && html`<p class="failure-code">${[error.layer, error.code].filter(Boolean).join(" · ")}</p>`}
        ${turn.said !== null && html`
          <div class="failure-actions">
            <button type="button" class="button small" onClick=${() => client.retry(turn)}>
              ${uncertain ? "Send again" : "Try again"}
            </button>
            <button type="button" class="button small plain" onClick=${() => client.dismiss(turn)}>Dismiss</button>
          </div>`}
      </div>
    </div>`;
}
