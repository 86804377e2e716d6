#!/usr/bin/env bash
# Regenerates everything that is derived from api/v1alpha1: deepcopy, CRDs, clients. Running it again changes nothing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

tool() { go tool -modfile=tools.mod "$@"; }

echo "deepcopy and CRDs" >&2
tool controller-gen object paths=./api/v1alpha1
# generateEmbeddedObjectMeta: without it the labels of templates would be untyped, and no rule could read them.
tool controller-gen crd:generateEmbeddedObjectMeta=true paths=./api/v1alpha1 output:crd:dir=deploy/crds
go run ./api/gen deploy/crds

echo "clients, listers, informers" >&2
# Into a fresh folder that then takes the old one's place: what is no longer generated goes, and a build that runs
# meanwhile finds one or the other. The header is empty, so that no file carries a year.
pkg=millwright/api
new=$(mktemp -d api/.generated.XXXXXX)
trap 'rm -rf "$new"' EXIT
tool client-gen --go-header-file /dev/null --clientset-name versioned --input-base millwright --input api/v1alpha1 \
  --output-dir "$new/clientset" --output-pkg "$pkg/generated/clientset"
tool lister-gen --go-header-file /dev/null --output-dir "$new/listers" --output-pkg "$pkg/generated/listers" "$pkg/v1alpha1"
tool informer-gen --go-header-file /dev/null --output-dir "$new/informers" --output-pkg "$pkg/generated/informers" \
  --versioned-clientset-package "$pkg/generated/clientset/versioned" --listers-package "$pkg/generated/listers" "$pkg/v1alpha1"
chmod 755 "$new"
rm -rf api/generated
mv "$new" api/generated
