#!/bin/sh
# Creates the certificates in this folder again, with the openssl command (OpenSSL 1.1.1 or later, or LibreSSL). They
# are valid for a hundred years, except the expired ones. Tests/TestSupport/TestCertificate.swift describes them.
#
# Each certificate has NAME.pem, NAME.key, and NAME.pin, which is the SHA-256 of its public key in base64. The keys of
# the authorities are not kept.
set -eu
cd "$(dirname "$0")"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The dates are given to `openssl ca`: `openssl x509` accepts them only since 3.4.
valid="-startdate 20200101000000Z -enddate 21200101000000Z"
expired="-startdate 20200101000000Z -enddate 20200103000000Z"
: >"$work/index.txt"
echo "unique_subject = no" >"$work/index.txt.attr"
# Serial numbers are never repeated, not even by another run.
openssl rand -hex 8 | sed 's/^./1/' >"$work/serial"

new_key() { # FILE
    openssl ecparam -name prime256v1 -genkey -noout | openssl pkcs8 -topk8 -nocrypt -out "$1"
}

# Signs a certificate: all versions of the openssl command take extensions only from a file.
sign() { # FILE KEY COMMON_NAME DATES EXTENSIONS ARGUMENTS...
    file=$1 key=$2 name=$3 dates=$4 extensions=$5
    shift 5
    cat >"$work/config" <<END
[ca]
default_ca = authority
[authority]
dir = $work
database = $work/index.txt
serial = $work/serial
new_certs_dir = $work
default_md = sha256
policy = policy
email_in_dn = no
[policy]
commonName = supplied
[req]
distinguished_name = subject
prompt = no
[subject]
commonName = $name
[extensions]
$extensions
END
    openssl req -new -config "$work/config" -key "$key" -out "$work/request"
    # shellcheck disable=SC2086 # The dates are two options.
    openssl ca -batch -notext -config "$work/config" -extensions extensions -in "$work/request" -out "$file" $dates "$@" \
        2>"$work/errors" || { cat "$work/errors" >&2; exit 1; }
}

# The two authorities with one name also claim one key: only their signatures differ.
authority() { # FILE_NAME COMMON_NAME KEY_IDENTIFIER
    new_key "$work/$1.key"
    sign "$1.pem" "$work/$1.key" "$2" "$valid" "basicConstraints = critical, CA:true
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = $3" -selfsign -keyfile "$work/$1.key"
}

certificate() { # FILE_NAME COMMON_NAME AUTHORITY DATES PURPOSE ALTERNATIVE_NAMES
    [ -f "$1.key" ] || new_key "$1.key"
    sign "$1.pem" "$1.key" "$2" "$4" "basicConstraints = critical, CA:false
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid:always
extendedKeyUsage = $5
${6:+subjectAltName = $6}" -cert "$3.pem" -keyfile "$work/$3.key"
    openssl x509 -in "$1.pem" -pubkey -noout | openssl pkey -pubin -outform der | openssl dgst -sha256 -binary |
        openssl base64 >"$1.pin"
}

server() { # FILE_NAME AUTHORITY DATES ALTERNATIVE_NAMES
    certificate "$1" server "$2" "$3" serverAuth "$4"
}

client() { # FILE_NAME AUTHORITY DATES
    certificate "$1" client "$2" "$3" clientAuth ""
}

# Revokes a certificate, and creates the revocation list.
revoke() { # FILE_NAME AUTHORITY LIST_NAME
    openssl ca -batch -config "$work/config" -cert "$2.pem" -keyfile "$work/$2.key" -revoke "$1.pem" 2>"$work/errors" &&
        openssl ca -batch -config "$work/config" -cert "$2.pem" -keyfile "$work/$2.key" -gencrl -crldays 36500 \
            -out "$3.pem" 2>"$work/errors" || { cat "$work/errors" >&2; exit 1; }
}

rm -f ./*.pem ./*.key ./*.pin
authority authority "test authority" 0101010101010101
authority impostor "test authority" 0101010101010101
authority clients "clients" 0202020202020202
authority strangers "strangers" 0303030303030303
authority revoking "revoking" 0404040404040404
authority modern "modern" 0505050505050505

server server authority "$valid" "DNS:localhost, IP:127.0.0.1"
server server-renewed authority "$valid" "DNS:localhost, IP:127.0.0.1"
server server-expired authority "$expired" "DNS:localhost, IP:127.0.0.1"
server server-name-only authority "$valid" "DNS:example.com"
server server-other-name authority "$valid" "DNS:other.example, IP:127.0.0.1"
server server-db authority "$valid" "DNS:db.example"
server server-db-addresses authority "$valid" "DNS:db.example, IP:127.0.0.1, IP:10.1.2.3"
# The key of `server`, under another name.
cp server.key server-same-key.key
server server-same-key impostor "$valid" "DNS:other"

# Keys of further kinds.
for of in server client; do
    openssl genpkey -algorithm ed25519 -out $of-ed25519.key
    openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:secp521r1 -out $of-p521.key
done
server server-ed25519 modern "$valid" "DNS:localhost, IP:127.0.0.1"
server server-p521 modern "$valid" "DNS:localhost, IP:127.0.0.1"
client client-ed25519 modern "$valid"
client client-p521 modern "$valid"

# The key of `server`, encrypted in both forms of PEM.
openssl pkcs8 -topk8 -in server.key -passout pass:secret -out encrypted-pkcs8.key
openssl ec -in server.key -aes128 -passout pass:secret -out encrypted-traditional.key

client client authority "$valid"
client client-expired authority "$expired"
client client-of-clients clients "$valid"
client client-of-strangers strangers "$valid"
client client-of-revoking revoking "$valid"
client client-revoked revoking "$valid"
revoke client-revoked revoking revoked-list
