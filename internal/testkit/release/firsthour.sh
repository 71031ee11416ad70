#!/usr/bin/env bash
# firsthour.sh RELEASE LANGUAGE runs what docs/first-hour.md says to type for Go, Rust, C or AssemblyScript,
# with the files of RELEASE/dist and the modules of RELEASE, a directory of make release-snapshot. It needs
# root: directories of the user, the checkout and the caches of others are hidden. It prints each command with
# the seconds that it took, and ends with the first that fails.
set -euo pipefail
if [ "${FIRSTHOUR:-}" != inside ]; then
  page=$(cd "$(dirname "$0")/../../../docs" && pwd)/first-hour.md
  FIRSTHOUR=inside PAGE=$(cat "$page") exec unshare --mount -- "$0" "$(realpath "$1")" "$2"
fi
release=$1 language=$2
version=$(cd "$release" && git describe --tags --exact-match --match 'v*')

# blocks prints the blocks of shell below a heading of the page.
blocks() {
  awk -v heading="$1" '
    /^#+ / { here = $0; sub(/^#+ /, "", here) }
    /^```/ { if (code) code = 0; else code = ($0 == "```sh" && here == heading); next }
    code' <<<"$PAGE"
}
script=$(blocks Install; blocks "$language"; blocks "Ship it")
[ -n "$(blocks "$language")" ] || { echo "the page has no $language" >&2; exit 1; }

# What the page fetches lies in a directory that has nothing else of the machine.
root=/mnt/firsthour
mkdir -p $root
mount -t tmpfs -o size=6g tmpfs $root
mkdir -p $root/release $root/home $root/work $root/tmp
mount --bind -o ro "$release" $root/release
for hidden in /root /home /work /tmp; do [ ! -d $hidden ] || mount -t tmpfs tmpfs $hidden; done
mount --bind $root/tmp /tmp

# Nothing is published yet: addresses of the release are those of the directory.
{
  echo 'set -e; total=$SECONDS'
  while IFS= read -r line; do
    printf 'echo %q; begin=$SECONDS\n%s\necho "  # $((SECONDS - begin)) s"\n' "\$ $line" "${line//https:\/\/github.com\/kubewasm\/kubewasm\/releases\/download\/v\$version/file://$root/release/dist}"
  done <<<"${script/version=0.1.0/version=${version#v}}"
  echo 'echo "# '"$language"': $((SECONDS - total)) s"'
} >$root/script
cd $root/work
exec env -i HOME=$root/home PATH=/usr/local/go/bin:/usr/local/bin:/usr/bin:/bin TMPDIR=/tmp \
  ${GOPROXY:+GOPROXY="$GOPROXY"} ${HTTPS_PROXY:+HTTPS_PROXY="$HTTPS_PROXY"} ${NPM_CONFIG_REGISTRY:+NPM_CONFIG_REGISTRY="$NPM_CONFIG_REGISTRY"} \
  GOPRIVATE=github.com/kubewasm/kubewasm GIT_CONFIG_COUNT=2 \
  GIT_CONFIG_KEY_0=url.file://$root/release.insteadOf GIT_CONFIG_VALUE_0=https://github.com/kubewasm/kubewasm \
  GIT_CONFIG_KEY_1=safe.directory GIT_CONFIG_VALUE_1='*' \
  bash $root/script
