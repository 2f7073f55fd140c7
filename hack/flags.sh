# The flags of every build; source this file before go build, go test or the linter. Go's build cache distinguishes builds by
# these flags, so a package that is compiled with them is compiled once for all. With the race detector, set CGO_ENABLED=1.
#
# The compiler and the linker collect garbage only beyond 1 GiB, and write no DWARF, which programs are stripped of anyway:
# that takes a sixth off every build. To debug a test with Delve, run go test without this file.
export CGO_ENABLED=0 GOFLAGS="${GOFLAGS:-} -trimpath -gcflags=all=-dwarf=false '-toolexec=env GOGC=off GOMEMLIMIT=1GiB'"
