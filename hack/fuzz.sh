#!/usr/bin/env bash
# Runs every fuzz test of the given packages for a time, one after the other: hack/fuzz.sh FUZZTIME PACKAGE...
set -euo pipefail

fuzztime=$1
shift
tests=$(go test -short -list='^Fuzz' "$@" | awk '/^Fuzz/ { names[++n] = $1 } /^ok/ { for (i = 1; i <= n; i++) print $2, names[i]; n = 0 }')
while read -r package name; do
	echo "==> $package $name"
	go test -run='^$' -fuzz="^$name\$" -fuzztime="$fuzztime" "$package"
done <<<"$tests"
