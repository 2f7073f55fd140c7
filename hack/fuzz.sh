#!/usr/bin/env bash
# Runs every fuzz test of the given packages for the given time, one after the other: hack/fuzz.sh FUZZTIME PACKAGE...
set -euo pipefail
INLINE=1 source "$(dirname "$0")/flags.sh"

fuzztime=$1
shift
go list -f '{{.ImportPath}} {{.Dir}}' "$@" | while read -r package dir; do
	for name in $(cat "$dir"/*_test.go 2>/dev/null | sed -nE 's/^func (Fuzz[A-Za-z0-9_]+)\(.*/\1/p'); do
		echo "==> $package $name"
		go test -run='^$' -fuzz="^$name\$" -fuzztime="$fuzztime" "$package" </dev/null
	done
done
