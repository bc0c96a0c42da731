#!/usr/bin/env bash
# Makes a virtual environment of Python packages, once, in the user's cache.
# See --help.
set -euo pipefail
# shellcheck source=scripts/cache.sh
. "$(dirname "$(readlink -f "$0")")/cache.sh"

cd "$(dirname "$0")/.."
base=instance/python/environment/base
root="$cache/python"
python="${FAAS_INFER_PYTHON:-python3}"

engines() {
	local all=("$base"/*.txt)
	all=("${all[@]##*/}")
	echo "${all[@]%.txt}"
}

usage() {
	cat <<-EOF
		Usage: scripts/python.sh [ENGINE] [REQUIREMENTS]

		Makes the virtual environment in which functions of an engine run, below
		  $root
		and prints the path of its Python. Does nothing if it is there already. The
		environment has the packages of the engine ($base/ENGINE.txt, pinned)
		and of the file REQUIREMENTS, if given. Its name is a hash of both and of Python's
		version, by which the provider finds the same environment.

		ENGINE is one of $(engines); the default is tensorflow,
		which fetches half a GB and keeps 1.6 GB. convert-tensorflow is as large. PyTorch,
		in convert-torch, fetches 3 GB and keeps 6 GB unless pip knows an index of its CPU
		wheels. convert-tabular keeps 0.9 GB.

		Environment:
		  FAAS_INFER_PYTHON  the Python that makes the environment, default python3
		  XDG_CACHE_HOME     where caches live, default ~/.cache
		  PIP_...            pip's own settings

		Example:
		  "\$(scripts/python.sh)" -c 'import tensorflow; print(tensorflow.__version__)'
	EOF
}

engine=tensorflow requirements=
case "${1-}" in
-h | --help)
	usage
	exit
	;;
"") ;;
*)
	if [[ -r $base/$1.txt ]]; then
		engine=$1
		shift
	fi
	;;
esac
if (($# > 1)) || [[ ${1-} == -* ]]; then
	usage >&2
	exit 2
fi
requirements=${1-}
if [[ -n $requirements && ! -r $requirements ]]; then
	echo "python.sh: the requirements file $requirements cannot be read; the engines are $(engines)" >&2
	exit 1
fi
"$python" -c 'import venv, ensurepip' 2>/dev/null || {
	echo "python.sh: $python has no module venv or ensurepip: apt-get install python3-venv" >&2
	exit 1
}

# The same text as package instance/python/environment hashes.
wanted() {
	"$python" -c 'import sys; print(f"{sys.implementation.name} {sys.version_info[0]}.{sys.version_info[1]}")'
	cat "$base/$engine.txt"
	if [[ -n $requirements ]]; then
		printf '\n'
		cat "$requirements"
	fi
}
hash=$(wanted | sha256sum | cut -c1-16)
dir="$root/$hash"

present() { [[ -x "$dir/bin/python" ]]; }

if ! present; then
	echo "Making the Python environment of $engine ($hash); this takes minutes, once" >&2
	begin
	"$python" -m venv "$work/out"
	"$work/out/bin/python" -m pip install --quiet --disable-pip-version-check --no-input \
		--requirement "$base/$engine.txt" ${requirements:+--requirement "$requirements"} >&2
	"$work/out/bin/python" -m compileall -q "$work/out/lib" >/dev/null 2>&1 || true
	keep "$work/out" "$dir" present
fi
echo "$dir/bin/python"
