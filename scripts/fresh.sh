#!/usr/bin/env bash
# Runs continuous integration as on a new machine. See --help.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
	cat <<-EOF
		Usage: scripts/fresh.sh [--keep] [COMMAND [ARGUMENT...]]

		Clones the commit that is checked out and runs a command there with empty caches,
		as on a new user's machine: no Go modules, no compiled packages, no Python
		environments, no gateway, no Kubernetes, an empty home. The default command is
		.ci/run, which takes an hour on two cores. Run it before every release, because a
		warm cache hides missing dependencies.

		Everything is below one temporary directory (some 20 GB, in TMPDIR). The script
		removes it at the end; --keep keeps it. It then prints how long each part took, and
		which tests passed only when they ran again. The exit status is the command's.
		Packages that apt has installed stay.

		Examples:
		  scripts/fresh.sh
		  scripts/fresh.sh make test
		  scripts/fresh.sh make demo
	EOF
}

keep=
while (($#)); do
	case "$1" in
	-h | --help)
		usage
		exit
		;;
	--keep) keep=1 ;;
	-*)
		echo "fresh.sh: there is no option $1" >&2
		usage >&2
		exit 2
		;;
	*) break ;;
	esac
	shift
done
(($#)) || set -- .ci/run

if [[ -n $(git status --porcelain --untracked-files=no) ]]; then
	echo "fresh.sh: these uncommitted changes are left out:" >&2
	git status --short --untracked-files=no >&2
fi
work=$(mktemp -d "${TMPDIR:-/tmp}/faas-infer-fresh-XXXXXX")
clear() {
	if [[ -n $keep ]]; then
		echo "fresh.sh: $work is kept" >&2
		return
	fi
	chmod -R u+w "$work" 2>/dev/null || true # Go's modules are read-only.
	rm -rf "$work"
}
trap clear EXIT
git clone --quiet --no-hardlinks . "$work/checkout"
mkdir "$work/home" "$work/cache" "$work/tmp"

echo "fresh.sh: $* at $(git rev-parse --short HEAD) with empty caches in $work" >&2
began=$SECONDS status=0
(
	cd "$work/checkout"
	unset GOFLAGS GOPATH FAAS_INFER_ONNXRUNTIME FAAS_INFER_PYTHON VIRTUAL_ENV
	export HOME="$work/home" XDG_CACHE_HOME="$work/cache" XDG_STATE_HOME="$work/state" TMPDIR="$work/tmp"
	export GOPATH="$work/go" GOMODCACHE="$work/go/pkg/mod" GOCACHE="$work/cache/go-build" PIP_CACHE_DIR="$work/cache/pip"
	export FAAS_INFER_TIMES="$work/times" FAAS_INFER_FLAKY="$work/flaky"
	"$@"
) || status=$?
echo
echo "Parts, in seconds:"
sort -rn "$work/times" 2>/dev/null || true
cat "$work/flaky" 2>/dev/null || true
echo "$((SECONDS - began)) in all, exit status $status"
exit $status
