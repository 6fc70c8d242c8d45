#!/usr/bin/env bash
# Runs the bundle of tools/gpu/bundle.ts on a machine with a GPU, from the repository's root.
#   compile   every module through the run-time compiler, a process each
#   test      the suites named (default: ops libraries compile model) on every device present (X_TEST_DEVICES=cuda:0 narrows it)
#   sanitize  compute-sanitizer memcheck and racecheck over the kernel tests (NVIDIA), a process a file, 16 at a time; files may be named
#   decode    tokens/s of the small model on each device
#   bench     one of tools/bench that is in the bundle, with the options that follow (default: ops)
#   example   one of examples/ that is in the bundle (bundle.ts has the list), with the options that follow
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
  for suite in "$@"; do
    echo "== $suite"
    "$node" --test-reporter=spec .gpu/$suite.test.mjs >/tmp/candle-$suite.log 2>&1 || status=1
    grep -E '^(# |ℹ )?(tests|pass|fail|duration_ms)' /tmp/candle-$suite.log || tail -n 5 /tmp/candle-$suite.log
    # What failed, with its reason: spec repeats failures at the end.
    sed -n '/failing tests:/,$p' /tmp/candle-$suite.log | head -n 200
  done
  return $status
}

sanitize_file() {
  local tool=$1 file=$2 log=/tmp/candle-$1-$2.log begin=$SECONDS
  X_TEST_FILES="/$file.test.ts\$" X_TEST_DEVICES=cuda:0 X_GEMM=kernels X_CONV=kernels X_TEST_SCALE=${X_TEST_SCALE:-0.1} \
    compute-sanitizer --tool $tool --report-api-errors no --error-exitcode 9 --print-limit 20 "$node" .gpu/ops.test.mjs >$log 2>&1 || echo "exit status $?" >>$log
  echo "$tool $file, $((SECONDS - begin)) s: $(grep -hE 'ERROR SUMMARY|RACECHECK SUMMARY|^# (pass|fail) |^exit status' $log | tr '\n' ' ')"
}

sanitize() {
  export node
  export -f sanitize_file
  [ $# -gt 0 ] || set -- $(grep -oE '"\./packages/rocm-backend/test/[^"]+\.test\.ts"' .gpu/ops.test.mjs | sort -u | sed -E 's/.*test\/(.*)\.test\.ts"/\1/')
  for tool in memcheck racecheck; do printf "$tool %s\n" "$@"; done | xargs -P 16 -L 1 bash -c 'sanitize_file "$0" "$1"'
}

compile() {
  local status=0 log
  for source in packages/kernels/sources/*.hip; do
    module=$(basename "$source" .hip | tr a-z A-Z)
    "$node" --test-reporter=spec --test-name-pattern="^$module has" .gpu/compile.test.mjs >/tmp/candle-compile-$module.log 2>&1 &
  done
  wait
  for log in /tmp/candle-compile-*.log; do
    grep -E '✔ [A-Z]+ has' "$log" || { status=1; tail -n 20 "$log"; }
  done
  return $status
}

decode() {
  for device in cuda:0 rocm:0 cpu js; do
    "$node" .gpu/candle.mjs run $model --json --temperature 0 --max-tokens 128 --device $device || true
  done
}

case "${1:-test}" in
  test) shift; test_all ${@:-ops libraries compile model} ;;
  compile) compile ;;
  sanitize) shift; sanitize "$@" ;;
  decode) decode ;;
  bench) shift; bench=${1:-ops}; shift || true; "$node" .gpu/bench-$bench.mjs "$@" ;;
  example) shift; example=$1; shift; "$node" .gpu/example-$example.mjs "$@" ;;
  *) echo "usage: tools/gpu/run.sh test [SUITE...]|compile|sanitize [FILE...]|decode|bench NAME [options]|example NAME [options]" >&2; exit 2 ;;
esac
