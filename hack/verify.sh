#!/usr/bin/env bash
# Fails when something in the tree is not as `make generate`, `go mod tidy` and gofmt leave it, when go vet complains,
# or when a file lacks the licence header. It works in a dirty tree too.
set -euo pipefail
cd "$(dirname "$0")/.."

failed=0
fail() {
	echo "verify: $1" >&2
	failed=1
}

go_files() { git ls-files --cached --others --exclude-standard -- '*.go' | while read -r f; do [[ -f $f ]] && echo "$f"; done; }

# snapshot copies everything that is generated.
snapshot() {
	mkdir -p "$1"
	{ find api -path '*applyconfiguration*' -type f; find api -name 'zz_generated.*'; find config/crd/bases -type f; } |
		tar -cf - -T - | tar -xf - -C "$1"
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
snapshot "$work/before"
make --no-print-directory generate >"$work/log" 2>&1 || { cat "$work/log" >&2; fail "make generate failed"; }
snapshot "$work/after"
diff -ru "$work/before" "$work/after" || fail "generated files were stale; they are up to date now"

go mod tidy -diff || fail "go.mod is not tidy: run go mod tidy"
unformatted=$(go_files | xargs gofmt -s -l)
[[ -z $unformatted ]] || fail "not formatted, run gofmt -s -w: $unformatted"

go vet ./... || fail "go vet failed"

header=$(sed -n 4p hack/boilerplate.go.txt) # the first line of the licence
while read -r file; do
	head -n 8 "$file" | grep -qF "$header" || fail "$file lacks the header of hack/boilerplate.go.txt"
done < <(go_files)

exit "$failed"
