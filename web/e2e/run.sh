#!/usr/bin/env bash
# Browser tests: starts `BINARY demo` on a free port, waits until it serves, drives it, and stops it.
#   web/e2e/run.sh ./bin/rollscope
# BASE_URL names a server that runs already; with a binary too, the tests that start one of their own run as well. SHOTS is where screenshots go.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
export SHOTS=${SHOTS:-$here/../test-results}
mkdir -p "$SHOTS"

if [ -n "${1:-}" ]; then ROLLSCOPE=$(realpath "$1"); export ROLLSCOPE; fi
if [ -z "${BASE_URL:-}" ]; then
  binary=${1:?usage: run.sh BINARY}
  log=$SHOTS/demo.log
  port=$(node -e 'const s = require("net").createServer().listen(0, "127.0.0.1", () => { console.log(s.address().port); s.close(); })')
  "$binary" demo --web.listen-address "127.0.0.1:$port" >"$log" 2>&1 &
  demo=$!
  trap 'kill $demo 2>/dev/null || true; wait $demo 2>/dev/null || true' EXIT
  for _ in $(seq 240); do
    # A busy port makes the demo take the next and print it.
    BASE_URL=$(grep -oE 'http://127\.0\.0\.1:[0-9]+' "$log" | head -1 || true)
    if [ -n "$BASE_URL" ] && node -e 'fetch(process.argv[1] + "/-/ready").then((r) => process.exit(r.ok ? 0 : 1), () => process.exit(1))' "$BASE_URL"; then break; fi
    if ! kill -0 $demo 2>/dev/null; then echo "the demo ended before it served:" >&2; tail -20 "$log" >&2; exit 1; fi
    sleep 0.5
  done
  export BASE_URL
fi
echo "driving $BASE_URL; screenshots in $SHOTS"
cd "$here/.."
node --test --test-concurrency=1 --test-timeout=1500000 "e2e/pages.e2e.mjs" "e2e/rollouts.e2e.mjs" "e2e/sources.e2e.mjs" "e2e/fixture.e2e.mjs" "e2e/viewer.e2e.mjs" "e2e/viewerdata.e2e.mjs" "e2e/requests.e2e.mjs" "e2e/traces.e2e.mjs" "e2e/logs.e2e.mjs" "e2e/passes.e2e.mjs"
