# What programs and images say about themselves; source this file. Variables of the environment take precedence, so that a build
# without git, or of another name, is possible: VERSION, COMMIT, and the time of the commit in SOURCE_DATE_EPOCH, in seconds since 1970.
# A tree with changes is "-dirty".
: "${VERSION:=$(git describe --tags --always --abbrev=12 --dirty 2>/dev/null || true)}"
: "${COMMIT:=$(git describe --always --exclude='*' --abbrev=40 --dirty 2>/dev/null || true)}"
: "${SOURCE_DATE_EPOCH:=$(git log -1 --format=%ct 2>/dev/null || true)}"
export VERSION COMMIT SOURCE_DATE_EPOCH
