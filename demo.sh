#!/usr/bin/env bash
# Forecasts, mends, checks and takes back a real broker's crashed store, as an operator would; called by `make demo`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
bin=$(cd "${BIN:-.venv/bin}" && pwd)
name=5.5.0-damage-cq-only-file-zero-abort

work=$(mktemp -d "${TMPDIR:-/tmp}/rmqtool-demo.XXXXXX")
trap 'rm -rf "$work"' EXIT
tar -xJf "tests/golden/$name.tar.xz" -C "$work"
cd "$work"

# Every byte, size and modification time of the store's files, as one digest.
state() {
  { find "$name" -type f -printf '%p %s %m %T@\n' | sort; find "$name" -type f -print0 | sort -z | xargs -0 sha256sum; } | sha256sum
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
echo "A RocketMQ 5.5.0 broker lost power: it was killed, and one queue's file came back as zeros. What it left:"
show info "$name"
show forecast "$name" --broker-version 5.5.0
show recover "$name" --dry-run
echo
if [[ $(state) != "$before" ]]; then
  echo "the store was changed" >&2
  exit 1
fi
echo "So far not a byte and not a modification time of the store has changed. Now the repair:"
show recover "$name" --yes
show verify "$name"
show forecast "$name" --broker-version 5.5.0
show get "$name" --topic TopicTest --queue-id 0 --queue-offset 0
echo
echo "And undone:"
show undo "$name" --yes
if [[ $(state) != "$before" ]]; then
  echo "the store is not what it was" >&2
  exit 1
fi
echo
echo "The store is what it was, to the byte and to the modification time."
