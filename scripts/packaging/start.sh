#!/bin/sh
# Starts the program of a tarball by the dynamic linker and the libraries that came with it, so that
# those of the system, whatever they are, do not matter.
top=$(dirname "$(dirname "$(readlink -f "$0")")")

# Where these libraries look for certificates Debian and Alpine have them, Fedora has not.
if [ -z "$SSL_CERT_FILE" ] && [ ! -e /etc/ssl/certs/ca-certificates.crt ] &&
    [ -e /etc/pki/tls/certs/ca-bundle.crt ]; then
  export SSL_CERT_FILE=/etc/pki/tls/certs/ca-bundle.crt
fi

exec "$top"/runtime/ld-linux-*.so.? --inhibit-cache --library-path "$top/runtime:$top/lib" \
  --argv0 sluice "$top/runtime/sluice" "$@"
