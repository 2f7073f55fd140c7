#!/usr/bin/env bash
# Fails if anything in the tree differs from what `make generate`, `go mod tidy` and gofmt produce, if modules that
# share compiled packages select different versions, if a program is too large, or if a file lacks the licence header.
# It works in a dirty tree too.
set -euo pipefail
cd "$(dirname "$0")/.."
source hack/flags.sh

failed=0
fail() {
	echo "verify: $1" >&2
	failed=1
}

go_files() { git ls-files --cached --others --exclude-standard -- '*.go' | while read -r f; do [[ -f $f ]] && echo "$f"; done; }

# snapshot copies all generated files.
snapshot() {
	mkdir -p "$1"
	{ find api -path '*applyconfiguration*' -type f; find api -name 'zz_generated.*'; find config/crd/bases config/rbac/role.yaml charts/catena/files -type f; } |
		tar -cf - -T - | tar -xf - -C "$1"
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
snapshot "$work/before"
make --no-print-directory generate >"$work/log" 2>&1 || { cat "$work/log" >&2; fail "make generate failed"; }
snapshot "$work/after"
diff -ru "$work/before" "$work/after" || fail "generated files were stale; they are up to date now"

for module in . adapters/adk hack/image test/manifests test/monitoring; do
	(cd "$module" && go mod tidy -diff) || fail "$module/go.mod is not tidy: run go mod tidy"
done
unformatted=$(go_files | xargs gofmt -s -l)
[[ -z $unformatted ]] || fail "not formatted, run gofmt -s -w: $unformatted"

# versions prints the modules that a go.mod file requires or replaces, and the versions. Both versions affect the
# compiled code: with -trimpath, the required one is in the paths of source files.
versions() { awk '$2 ~ /^v[0-9]/ {print $1, $2} $2 == "=>" {print $1, $4}' "$1" | sort -u; }
for other in adapters/adk/go.mod hack/controlplane/go.mod hack/image/go.mod hack/s3server/go.mod hack/tools.mod test/{manifests,monitoring}/go.mod; do
	while read -r module ours theirs; do
		[[ $ours != "$theirs" ]] || continue
		newer=$(printf '%s\n' "$ours" "$theirs" | sort -V | tail -n 1)
		fail "$module is $ours in go.mod and $theirs in $other, so packages that need it are compiled twice: \
run go get $module@$newer && go mod tidy where it is older, and change its replacement if it has one"
	done < <(join <(versions go.mod) <(versions "$other"))
done

# The limits apply to stripped linux/amd64 programs, in MB.
if [[ $(go env GOOS)/$(go env GOARCH) == linux/amd64 ]]; then
	# The gateway comes first: it contains SQLite, a package that would be compiled for long after all others.
	hack/build.sh gateway catena >"$work/log" 2>&1 || { cat "$work/log" >&2; fail "hack/build.sh failed"; }
	for limit in catena:88 gateway:45; do
		program=bin/${limit%:*} limit=${limit#*:}
		bytes=$(wc -c <"$program")
		echo "verify: $program is $((bytes / 1000000)) MB; the limit is $limit MB"
		((bytes <= limit * 1000000)) || fail "$program is too large: import less, or give the reason for a higher limit"
	done
fi

header=$(sed -n 4p hack/boilerplate.go.txt) # the first line of the licence
while read -r file; do
	head -n 8 "$file" | grep -qF "$header" || fail "$file lacks the header of hack/boilerplate.go.txt"
done < <(go_files)

exit "$failed"
