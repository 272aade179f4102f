#!/bin/sh
# Exit code 0: start the broker. Any other code: do not start it.
set -u
STORE=${STORE:-/home/rocketmq/store}
VERSION=${VERSION:-5.3.3}
if [ ! -e "$STORE/commitlog" ] && [ ! -e "$STORE/consumequeue" ] && [ ! -e "$STORE/checkpoint" ]; then
  exit 0 # a new volume: the first start of this broker
fi
# Exit code 3 and NOT FULLY CHECKED: nothing is wrong in what the broker's start reads, the rest of a large log was not read.
start_reads_nothing_wrong() {
  result=$("$@" --broker-version "$VERSION" --format json)
  code=$?
  if [ "$code" -eq 3 ] && printf '%s' "$result" | grep -q '^  "verdict": "not-fully-checked"'; then code=0; fi
  if [ "$code" -ne 0 ]; then printf '%s\n' "$result"; fi
  return "$code"
}
start_reads_nothing_wrong rmqtool recover "$STORE" --yes || exit $?
start_reads_nothing_wrong rmqtool forecast "$STORE"
