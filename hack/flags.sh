# The flags of every build; source this file before go build, go test or the linter. Go's build cache distinguishes builds
# by these flags, so every package is compiled only once. With the race detector, set CGO_ENABLED=1.
#
# The compiler and the linker collect garbage only beyond 3 GiB, which no package reaches: a package that reaches the
# limit takes three times as long to compile. A compiler uses one core, because as many run as there are cores, and writes
# no DWARF, which programs are stripped of anyway. Together, these flags make a build a quarter faster. To debug a test
# with Delve, run go test without it. Without inlining, programs and tools take a sixth less time to build. With INLINE=1,
# functions are inlined, as in a release: for benchmarks, and for tests, which otherwise take 50% longer with the race
# detector.
#
# With the race detector, compression takes four times as long, most of it to check memory that no other goroutine uses.
# It is compiled without these checks.
export CGO_ENABLED=0
flags="-dwarf=false -c=1$([[ ${INLINE:-} == 1 ]] || echo ' -l')"
unchecked="github.com/klauspost/compress/...=$flags -race=false -d=checkptr=0"
export GOFLAGS="${GOFLAGS:-} -trimpath '-gcflags=all=$flags' '-gcflags=$unchecked' '-toolexec=env GOGC=off GOMEMLIMIT=3GiB'"
