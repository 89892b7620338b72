#!/usr/bin/env bash
# run.sh SECONDS: runs each fuzz target for so long, on the stable tool chain. Corpus and findings are kept in the cache.
set -euo pipefail
cd "$(dirname "$0")"
seconds=${1:-60}
cache=${QUORATE_CACHE_DIR:-$HOME/.cache/quorate}
export PATH=$cache/tools/bin:$PATH CARGO_TARGET_DIR=$cache/target-fuzz RUSTC_BOOTSTRAP=1

command -v cargo-fuzz >/dev/null ||
  env -u RUSTC_BOOTSTRAP CARGO_TARGET_DIR="$cache/tools/target" cargo install --locked --root "$cache/tools" cargo-fuzz

for target in fuzz_targets/*.rs; do
  name=$(basename "$target" .rs)
  corpus=$cache/fuzz/$name/corpus
  mkdir -p "$corpus" "$cache/fuzz/$name/artifacts"
  echo "# $name"
  cargo fuzz run --fuzz-dir . --all-features "$name" "$corpus" -- -max_total_time="$seconds" -print_final_stats=1 \
    -artifact_prefix="$cache/fuzz/$name/artifacts/" -rss_limit_mb=2048 -timeout=10
done
