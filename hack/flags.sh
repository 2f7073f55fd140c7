# The flags of every build without the race detector; source this file before go build, go vet or the linter. Go's build
# cache distinguishes builds by these flags, so a package that is compiled with them is compiled once for all.
export CGO_ENABLED=0 GOFLAGS="${GOFLAGS:-} -trimpath"
