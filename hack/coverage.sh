#!/usr/bin/env bash
# Prints the statement coverage of each package and of all packages from the profile given as the first argument. A
# statement counts once, regardless of how many test binaries have run it.
set -euo pipefail

awk '
NR == 1 { next } # mode
{
	if (!($1 in statements)) { statements[$1] = $2 }
	if ($3 > 0) { covered[$1] = 1 }
}
END {
	for (block in statements) {
		package = block
		sub(/\/[^\/]*:.*/, "", package)
		all[package] += statements[block]; total += statements[block]
		if (block in covered) { hit[package] += statements[block]; totalHit += statements[block] }
	}
	for (package in all) { printf "%5.1f%%  %s\n", 100 * hit[package] / all[package], package | "sort -k2" }
	close("sort -k2")
	printf "%5.1f%%  total\n", 100 * totalHit / total
}' "$1"
