// `html` builds what Preact draws. Vendored modules are imported by path: an import map would have to be inline.
import htm from "../vendor/htm/htm.module.js";
import { h } from "../vendor/preact/preact.mjs";

export { Component, createRef, Fragment, render } from "../vendor/preact/preact.mjs";
export const html = htm.bind(h);
