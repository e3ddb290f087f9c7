# A bare Debian 12 (debootstrap's minbase) to try things in, for the scripts
# that read this file. It needs root, debootstrap and a mirror of Debian's
# (MIRROR).
#
#   bare_debian [OPTION...]   makes one, with these options of debootstrap's, at
#                             $root; it and $work are gone when the script ends.
#                             Says in one line what it lacks and ends the script
#                             then, which is no failure
#   inside [NAME=VALUE...] COMMAND...
#                             runs there with nothing of this system's
#                             environment
# shellcheck shell=sh

skip() {
  echo "$(basename "$0" .sh): skipped: $*"
  exit 0
}

bare_debian() {
  mirror=${MIRROR-http://deb.debian.org/debian}
  [ "$(id -u)" -eq 0 ] || skip "not run as root"
  command -v debootstrap >/dev/null || skip "no debootstrap (Debian's package)"
  work=$(mktemp -d)
  root=$work/root
  trap clean_bare_debian EXIT
  debootstrap --variant=minbase "$@" \
    bookworm "$root" "$mirror" >"$work/log" 2>&1 || {
    tail -n 5 "$work/log" >&2
    skip "no Debian 12 from $mirror"
  }
  mount -t proc proc "$root/proc" 2>/dev/null || : # fewer facts for the doctor
}

clean_bare_debian() {
  umount "$root/proc" 2>/dev/null || :
  rm -rf --one-file-system "$work"
}

inside() {
  chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
    "$@"
}
