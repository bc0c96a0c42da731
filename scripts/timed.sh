#!/usr/bin/env bash
# Runs a command and says how long it took. See --help.
set -euo pipefail

usage() {
	cat <<-EOF
		Usage: scripts/timed.sh NAME COMMAND [ARGUMENT...]

		Runs the command and prints how long it took, if that was 5 s or more. If
		FAAS_INFER_TIMES names a file, it appends a line "SECONDS NAME" to it, from which
		.ci/run and scripts/fresh.sh make their tables. The exit status is the command's.

		Example:
		  scripts/timed.sh gateway scripts/gateway.sh
	EOF
}

case "${1-}" in
-h | --help)
	usage
	exit
	;;
esac
if (($# < 2)); then
	usage >&2
	exit 2
fi
name=$1
shift
began=$SECONDS status=0
"$@" || status=$?
took=$((SECONDS - began))
((took < 5)) || echo "$name: ${took} s" >&2
[[ -z ${FAAS_INFER_TIMES-} ]] || echo "$took $name" >>"$FAAS_INFER_TIMES"
exit $status
