#!/usr/bin/env bash
# Looks into the store of a real broker that was killed under load, the way an operator would; called by `make demo`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
bin=$(cd "${BIN:-.venv/bin}" && pwd)
name=broker-5.5.0-mixed-killed

work=$(mktemp -d "${TMPDIR:-/tmp}/rmqtool-demo.XXXXXX")
trap 'rm -rf "$work"' EXIT
tar -xJf "tests/golden/$name.tar.xz" -C "$work"
cd "$work"

# Every byte, size and modification time of the store, as one digest.
state() {
  { find "$name" -printf '%p %s %m %T@\n' | sort; find "$name" -type f -print0 | sort -z | xargs -0 sha256sum; } | sha256sum
}

# Prints a command as a person would type it, then runs it. Exit code 3 says that there was something to find.
show() {
  printf '\n$ rmqtool %s\n' "$(printf '%s ' "$@" | sed 's/ $//')"
  local code=0
  "$bin/rmqtool" "$@" || code=$?
  if ((code != 0 && code != 3)); then
    echo "rmqtool ended with exit code $code" >&2
    exit "$code"
  fi
}

before=$(state)
echo "A RocketMQ 5.5.0 broker was killed while producers were sending. What it left:"
show info "$name"
show dump "$name" --limit 5
show get "$name" --topic orders --queue-id 0 --queue-offset 0
echo
if [[ $(state) != "$before" ]]; then
  echo "the store was changed" >&2
  exit 1
fi
echo "Not a byte and not a modification time of the store has changed."
