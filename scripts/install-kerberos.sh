#!/bin/sh
# Installs MIT Kerberos (a KDC, its administration and kinit) and faketime, for the tests of Kerberos. They start a KDC of their own;
# the service of the package has no realm, and so does not start.
set -eu

PATH=$PATH:/usr/sbin:/sbin
for name in krb5kdc kdb5_util kadmin.local kinit faketime; do
	command -v "$name" >/dev/null 2>&1 || missing=$name
done
[ -n "${missing:-}" ] || exit 0
exec "${0%/*}/apt-install.sh" "The tests of Kerberos need a KDC" krb5-kdc krb5-admin-server krb5-user faketime
