#!/usr/bin/env bash
# Runs the tests many times under load and counts the failures. See --help.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
	cat <<-EOF
		Usage: scripts/flakes.sh N [FLAG|PACKAGE...]

		Runs the tests N times while as many processes as the machine has cores keep it busy.
		No test runs twice in a round. The script then prints a table of the tests that
		failed, and in how many of the rounds. Their output goes to the standard error. The
		exit status is 1 if any test failed.

		Without packages it runs all that make test runs; make ready gateway faas-cli chromium python
		comes first. Flags are those of go test, with values as -name=value; -C=lab, before all
		others, chooses the lab's module.

		Examples:
		  scripts/flakes.sh 3
		  scripts/flakes.sh 20 -race -run=TestLive ./model/bundle
		  scripts/flakes.sh 5 -C=lab ./sim
		  scripts/flakes.sh 2 -p=2 -timeout=40m ./e2e/kubernetes/...
	EOF
}

case "${1-}" in
-h | --help)
	usage
	exit
	;;
esac
if [[ ! ${1-} =~ ^[1-9][0-9]*$ ]]; then
	usage >&2
	exit 2
fi
rounds=$1
shift
flags=() packages=()
for argument; do
	if [[ $argument == -* ]]; then flags+=("$argument"); else packages+=("$argument"); fi
done
if ((${#flags[@]} && !${#packages[@]})); then
	echo "flakes.sh: ${flags[*]} needs a package, as ./batching/..." >&2
	exit 2
fi

failures=$(mktemp)
busy=() done=0
finish() {
	local status=$?
	((!${#busy[@]})) || kill "${busy[@]}" 2>/dev/null || true
	if [[ -s $failures ]]; then
		echo "failed in  test ($done rounds)"
		sort "$failures" | uniq -c | sort -k1,1nr -k2 | sed -E 's/^ *([0-9]+) /\1\t/' | expand -t 11
		((status)) || status=1
	else
		echo "No test failed. Rounds: $done"
	fi
	rm -f "$failures"
	exit $status
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# They end by themselves if this script is killed.
for ((i = 0; i < $(nproc); i++)); do
	while kill -0 $$ 2>/dev/null; do :; done &
	busy+=($!)
done

export FAAS_INFER_RERUNS=0 FAAS_INFER_FAILED="$failures" FAAS_INFER_FLAKY=/dev/null GOFLAGS="${GOFLAGS-} -count=1"
for ((round = 1; round <= rounds; round++)); do
	echo "flakes.sh: round $round of $rounds" >&2
	before=$(wc -l <"$failures")
	status=0
	if ((${#packages[@]})); then
		scripts/gotest.py "${flags[@]}" -- "${packages[@]}" >&2 || status=$?
	else
		make --no-print-directory -k test-packages test-end-to-end >&2 || status=$?
	fi
	# Without the name of a test the run itself went wrong.
	if ((status)) && (($(wc -l <"$failures") == before)); then exit $status; fi
	done=$round
done
