#!/usr/bin/env bash
# Installs what `make test` needs and this machine lacks: the page's npm packages, Go modules, and on
# Debian the real servers that the integration tests run against. Nothing is started as a service.
# Ends with exit code 1 and the names of what could not be installed.
set -u
cd "$(dirname "$0")/.."
missing=()

command -v go   >/dev/null || missing+=("go (https://go.dev/dl, see go.mod for the version)")
command -v node >/dev/null || missing+=("node 20 or newer")
command -v npm  >/dev/null || missing+=("npm")

# binary:package
servers=(prometheus:prometheus prometheus-alertmanager:prometheus-alertmanager chromium:chromium gcc:gcc promtool:prometheus python3:python3 nats-server:nats-server etcd:etcd-server)
torch() { for p in python3 /usr/bin/python3; do "$p" -c 'import torch, numpy' 2>/dev/null && return 0; done; return 1; }
msgpack() { for p in /usr/bin/python3 python3; do "$p" -c 'import msgpack' 2>/dev/null && return 0; done; return 1; }
zmq() { for p in python3 /usr/bin/python3; do "$p" -c 'import zmq, msgpack' 2>/dev/null && return 0; done; return 1; }
want=()
for s in "${servers[@]}"; do
  command -v "${s%%:*}" >/dev/null || [ -x "/usr/sbin/${s%%:*}" ] || want+=("${s##*:}")
done
torch || want+=(python3-torch)
zmq || want+=(python3-zmq python3-msgpack)
msgpack || want+=(python3-msgpack)
if [ ${#want[@]} -gt 0 ]; then
  if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
    # Packages of servers start them on installation: policy-rc.d forbids that while we install.
    made=
    if [ ! -e /usr/sbin/policy-rc.d ]; then
      printf '#!/bin/sh\nexit 101\n' > /usr/sbin/policy-rc.d && chmod +x /usr/sbin/policy-rc.d && made=1
    fi
    export DEBIAN_FRONTEND=noninteractive
    echo "installing: ${want[*]}"
    apt-get update -qq && apt-get install -y -qq --no-install-recommends "${want[@]}" libc6-dev >/tmp/rollscope-apt.log 2>&1 </dev/null \
      || tail -5 /tmp/rollscope-apt.log
    [ -n "$made" ] && rm -f /usr/sbin/policy-rc.d
  fi
  for s in "${servers[@]}"; do
    command -v "${s%%:*}" >/dev/null || [ -x "/usr/sbin/${s%%:*}" ] || missing+=("${s%%:*} (Debian package ${s##*:})")
  done
  msgpack || missing+=("msgpack for python3 (Debian package python3-msgpack)")
  torch || missing+=("torch and numpy for python3 (Debian package python3-torch)")
  zmq || missing+=("zmq and msgpack for python3 (Debian packages python3-zmq, python3-msgpack)")
fi

if command -v npm >/dev/null && [ ! -e web/node_modules/.package-lock.json ]; then
  (cd web && npm ci --no-audit --no-fund --loglevel=error) || missing+=("npm packages of web/")
fi
if command -v go >/dev/null; then
  go mod download || missing+=("Go modules of go.mod")
fi

if [ ${#missing[@]} -gt 0 ]; then
  echo "cannot run the tests, not installed:" >&2
  printf '  - %s\n' "${missing[@]}" >&2
  exit 1
fi
