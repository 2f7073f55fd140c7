# The flags of every build; source this file before go build, go test or the linter. Go's build cache distinguishes builds by
# these flags, so a package that is compiled with them is compiled once for all. With the race detector, set CGO_ENABLED=1.
#
# The compiler and the linker collect garbage only beyond 3 GiB, which no package needs: at a limit that it needs, a package
# takes three times as long. A compiler uses one core, because as many run as there are cores, and writes no DWARF, which
# programs are stripped of anyway. All that takes a quarter off a build. To debug a test with Delve, run go test without it.
# Not inlining takes off another sixth; with INLINE=1, for benchmarks, functions are inlined as in a release.
export CGO_ENABLED=0
export GOFLAGS="${GOFLAGS:-} -trimpath '-gcflags=all=-dwarf=false -c=1$([[ ${INLINE:-} == 1 ]] || echo ' -l')' '-toolexec=env GOGC=off GOMEMLIMIT=3GiB'"
