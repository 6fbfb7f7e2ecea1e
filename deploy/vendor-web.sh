#!/bin/bash
# Brings the web app's libraries from npm into app/web/static/vendor, unmodified, each with its licence.
# To update one: change its version here, run this, run the browser tests, commit. Needs npm, tar and sha256sum.
set -euo pipefail

# package@version  the ES module inside it  its licence files
MODULES="
preact@11.2.0    dist/preact.mjs      LICENSE
htm@3.1.1        dist/htm.module.js   LICENSE
marked@18.2.1    lib/marked.esm.js    LICENSE
dompurify@3.5.0  dist/purify.es.mjs   LICENSE LICENSE-MPL
"

vendor="$(cd "$(dirname "$0")/.." && pwd)/app/web/static/vendor"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
rm -rf "$vendor"
mkdir -p "$vendor"

while read -r package module licences; do
  [ -n "$package" ] || continue
  name="${package%@*}"
  mkdir -p "$work/$name" "$vendor/$name"
  tarball="$(cd "$work" && npm pack --silent --ignore-scripts "$package")"
  tar -xzf "$work/$tarball" -C "$work/$name" --strip-components=1
  for file in "$module" $licences; do
    cp "$work/$name/$file" "$vendor/$name/"
    sum="$(sha256sum "$work/$name/$file" | cut -d' ' -f1)"
    echo "$package $file $sum" >> "$vendor/VERSIONS"
  done
done <<< "$MODULES"
chmod -R u=rwX,go=rX "$vendor"
cat "$vendor/VERSIONS"
