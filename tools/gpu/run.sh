#!/usr/bin/env bash
# Runs the bundle of tools/gpu/bundle.ts on a machine with a GPU, from the repository's root.
#   test      every device test on every device present (X_TEST_DEVICES=cuda:0 narrows it)
#   sanitize  compute-sanitizer memcheck and racecheck over the kernel tests (NVIDIA)
#   decode    tokens/s of the small model on each device
set -euo pipefail
cd "$(dirname "$0")/../.."
node=$(command -v node || true)
if [ -z "$node" ]; then
  mkdir -p /tmp/candle-node
  [ -x /tmp/candle-node/node ] || { xz -dc .gpu/node.xz >/tmp/candle-node/node && chmod +x /tmp/candle-node/node; }
  node=/tmp/candle-node/node
fi
[ -d packages/kernels/sources ] || tar -xJf .gpu/built.tar.xz
model=models/tiny-tales/tiny-tales-q8_0.gguf

test_all() {
  local status=0
  for suite in ops model; do
    echo "== $suite"
    "$node" --test-reporter=dot .gpu/$suite.test.mjs >/tmp/candle-$suite.log 2>&1 || status=1
    grep -E '^(# |ℹ )?(tests|pass|fail)' /tmp/candle-$suite.log || tail -n 5 /tmp/candle-$suite.log
    [ $status = 0 ] || tail -n 150 /tmp/candle-$suite.log
  done
  return $status
}

sanitize() {
  for tool in memcheck racecheck; do
    echo "== compute-sanitizer $tool"
    X_TEST_DEVICES=cuda:0 X_TEST_SCALE=${X_TEST_SCALE:-0.1} compute-sanitizer --tool $tool --report-api-errors no --error-exitcode 9 --print-limit 20 "$node" .gpu/ops.test.mjs >/tmp/candle-$tool.log 2>&1 || echo "exit status $?"
    grep -E 'ERROR SUMMARY|RACECHECK SUMMARY|^=========' /tmp/candle-$tool.log | tail -n 5
    grep -E '^(# |ℹ )(tests|pass|fail)' /tmp/candle-$tool.log || tail -n 20 /tmp/candle-$tool.log
  done
}

decode() {
  for device in cuda:0 rocm:0 cpu js; do
    "$node" .gpu/candle.mjs run $model --json --temperature 0 --max-tokens 128 --device $device || true
  done
}

case "${1:-test}" in
  test) test_all ;;
  sanitize) sanitize ;;
  decode) decode ;;
  *) echo "usage: tools/gpu/run.sh test|sanitize|decode" >&2; exit 2 ;;
esac
