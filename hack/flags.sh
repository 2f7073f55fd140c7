# The flags of every build; source this file before go build, go test or the linter. Go's build cache distinguishes builds by
# these flags, so a package that is compiled with them is compiled once for all. With the race detector, set CGO_ENABLED=1.
#
# The compiler and the linker collect garbage only beyond 3 GiB, which no package reaches: a package that reaches the limit
# takes three times as long to compile. A compiler uses one core, because as many run as there are cores, and writes no
# DWARF, which programs are stripped of anyway. All that takes a quarter off a build. To debug a test with Delve, run go
# test without it. Without inlining, programs and tools build in a sixth less time. With INLINE=1, functions are inlined, as
# in a release: for tests, which take half as long again with a race detector that is not inlined, and for benchmarks.
#
# With the race detector, compression takes four times as long, most of it to check memory that no other goroutine uses. It
# is compiled without these checks.
export CGO_ENABLED=0
flags="-dwarf=false -c=1$([[ ${INLINE:-} == 1 ]] || echo ' -l')"
unchecked="github.com/klauspost/compress/...=$flags -race=false -d=checkptr=0"
export GOFLAGS="${GOFLAGS:-} -trimpath '-gcflags=all=$flags' '-gcflags=$unchecked' '-toolexec=env GOGC=off GOMEMLIMIT=3GiB'"
