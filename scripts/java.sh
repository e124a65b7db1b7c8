#!/usr/bin/env bash
# Make sure that Spark will find Java 17 or newer: say which one it is, install it, or say what to install.
set -euo pipefail

readonly needed=17

# Spark takes $JAVA_HOME when it is set and the java on the PATH otherwise; so do we.
java_command() {
    if [[ -n "${JAVA_HOME:-}" ]]; then echo "$JAVA_HOME/bin/java"; else command -v java || true; fi
}

# 17 from 'openjdk version "17.0.15" 2025-04-15', 8 from 'java version "1.8.0_402"', 0 when there is none.
java_major() {
    local java version
    java=$(java_command)
    if [[ -z "$java" || ! -x "$java" ]]; then echo 0; return; fi
    version=$("$java" -version 2>&1 | sed -n 's/.*version "\([^"]*\)".*/\1/p' | head -n 1)
    version=${version#1.}
    version=${version%%[!0-9]*}
    echo "${version:-0}"
}

# Debian 12 has Java 17, Debian 13 has 21.
apt_package() {
    local package
    for package in openjdk-17-jre-headless openjdk-21-jre-headless; do
        if apt-cache show "$package" >/dev/null 2>&1; then echo "$package"; return; fi
    done
    echo default-jre-headless
}

apt_install_java() {
    apt-get update -qq
    local package
    package=$(apt_package)
    echo "      installing $package with apt-get" >&2
    # Slim images leave this folder out, and the package's last step fails without it.
    mkdir -p /usr/share/man/man1
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$package" >/dev/null
}

explain() {
    local found
    found=$(java_major)
    if ((found == 0)); then found=none; fi
    if [[ -n "${JAVA_HOME:-}" ]]; then
        echo "error: JAVA_HOME is $JAVA_HOME, which is not Java $needed or newer (found: $found)."
        echo "Unset JAVA_HOME, or let it name a Java $needed."
    else
        echo "error: Spark needs Java $needed or newer (found: $found)."
    fi
    echo "On Debian or Ubuntu:  sudo apt-get install openjdk-17-jre-headless   (Debian 13: openjdk-21-jre-headless)"
    echo "Elsewhere: install any JDK of version $needed or newer and let JAVA_HOME name its folder."
} >&2

if (($(java_major) < needed)) && [[ -z "${JAVA_HOME:-}" && $EUID -eq 0 ]] && command -v apt-get >/dev/null; then
    apt_install_java || true # the check below says what is missing
fi
if (($(java_major) < needed)); then
    explain
    exit 1
fi
echo "Java $(java_major) ($(java_command))"
