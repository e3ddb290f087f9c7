#!/bin/sh
# Holds what `sluicerun --emit` prints against what others publish: Kubernetes'
# own schemas (PyPI's kubernetes-validate has them), and bash's grammar.
#
#   check_manifests.sh [BUILD]   the build that has bin/sluicerun (build/release)
#
# Needs python3 with pip and PyPI; says in one line what it lacks and does
# nothing then. What the jobs do is for tests/apps/sluicerun/deploy_test.cc and
# kubernetes_test.cc.
set -eu
cd "$(dirname "$0")/.."
sluicerun=${1-build/release}/bin/sluicerun
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m pip install --quiet --disable-pip-version-check --retries 1 \
  --target "$work/packages" kubernetes-validate 2>"$work/log" || {
  echo "check_manifests: skipped: $(tail -n 1 "$work/log")"
  exit 0
}

"$sluicerun" -n 3 --max-restarts 2 --emit slurm resnet50 train --data "a b" \
  >"$work/script"
bash -n "$work/script"
"$sluicerun" -n 3 --emit kubernetes --image sluice --claim logs:/logs \
  --claim data:/data --max-restarts 2 resnet50 train --data /data \
  --log-dir /logs/1 >"$work/whole.json"
"$sluicerun" -n 1 --emit kubernetes --image sluice --allow-plaintext \
  mnist train >"$work/least.json"
"$sluicerun" -n 2 --ps 2 --emit kubernetes --image sluice --max-restarts 1 \
  --cpus 4 --memory 8 --gpus 1 \
  mnist train --strategy ps >"$work/servers.json"
PYTHONPATH=$work/packages python3 - "$work"/*.json <<'PYTHON'
import json
import sys

import kubernetes_validate as schemas

version = schemas.latest_version()
for path in sys.argv[1:]:
    with open(path, encoding="utf-8") as file:
        items = json.load(file)["items"]
    for item in items:
        schemas.validate(item, version, strict=True)
        print(f"{item['kind']} is Kubernetes {version}'s")
    # The schemas do notice what is wrong.
    job = items[-1]
    job["spec"]["completionMod"] = "Indexed"
    try:
        schemas.validate(job, version, strict=True)
    except schemas.ValidationError:
        continue
    sys.exit("a wrong field went unnoticed")
PYTHON
