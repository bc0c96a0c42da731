# What the scripts that fill the user's cache have in common. A script sources this file, says
# its usage and calls options. It sets root, the directory of all its versions, and dir, that of
# one version, which exists as a whole or not at all.
# shellcheck shell=bash disable=SC2034,SC2154

work=
cache="${XDG_CACHE_HOME:-$HOME/.cache}/faas-infer"

# options takes the arguments of a script that knows --help only.
options() {
	case "${1-}" in
	-h | --help)
		usage
		exit
		;;
	'') ;;
	*)
		usage >&2
		exit 2
		;;
	esac
}

# begin makes the directory $work, which goes at the end of the script.
begin() {
	mkdir -p "$root"
	work=$(mktemp -d "$root/.build-XXXXXX")
	trap discard EXIT
	mkdir "$work/out"
}

discard() {
	[[ -n $work ]] || return 0
	chmod -R u+w "$work"
	rm -rf "$work"
	work=
}

# keep renames the directory $1 to $2, within one file system: an interrupted build leaves
# nothing behind. Of two concurrent builds the first one wins if the command $3 finds it whole.
keep() {
	mv -T "$1" "$2" 2>/dev/null || "$3" || {
		rm -rf "$2"
		mv -T "$1" "$2"
	}
}

# fill prints $2 and makes dir of what the script's build puts into $work/out with Go $1. It
# does nothing if the script's present finds dir whole.
fill() {
	if present; then return; fi
	command -v go >/dev/null || {
		echo "${0##*/}: needs Go $1 or later on the PATH" >&2
		exit 1
	}
	echo "$2" >&2
	[[ -n ${work-} ]] || begin
	(
		export GOFLAGS=-mod=mod GOWORK=off CGO_ENABLED=0 GOTOOLCHAIN=local
		build
	)
	keep "$work/out" "$dir" present
	discard
}

# in_module makes the throw-away module $work/$1 and goes there. It requires the module $2 at
# version $3. $4 and $5 are the checksums that sum.golang.org holds for the module and, if
# given, its go.mod; go itself checks the dependencies against that log.
in_module() {
	mkdir "$work/$1"
	cd "$work/$1"
	printf 'module %s-build\n\ngo 1.24.0\n\nrequire %s %s\n' "$1" "$2" "$3" >go.mod
	printf '%s %s %s\n' "$2" "$3" "$4" >go.sum
	[[ -z ${5-} ]] || printf '%s %s/go.mod %s\n' "$2" "$3" "$5" >>go.sum
}

# private_lists gives apt-get, called with the options "${private[@]}", package lists below
# $work: the machine's belong to root and may be absent.
private_lists() {
	mkdir -p "$work/lists/partial" "$work/debs"
	# Container images have hooks here that only root can run.
	echo '#clear APT::Update::Post-Invoke;' >"$work/apt.conf"
	private=(-c "$work/apt.conf" -o Dir::State::lists="$work/lists" -o Dir::Cache="$work" -o Debug::NoLocking=1 -o APT::Sandbox::User=root)
	apt-get "${private[@]}" update -qq >&2
}

# extract fetches Debian's packages $* and extracts them into $work/out.
extract() {
	local deb
	(cd "$work/debs" && apt-get "${private[@]}" download -qq "$@" >&2)
	for deb in "$work"/debs/*.deb; do
		dpkg-deb --extract "$deb" "$work/out"
	done
}

# unpack is private_lists and extract. It sets failed to 0 or to the status of the failure.
unpack() {
	echo "Unpacking Debian's $*" >&2
	# In a condition, set -e would not stop at the first failure.
	set +e
	(
		set -e
		private_lists
		extract "$@"
	)
	failed=$?
	set -e
}
