#!/bin/sh
# Runs many of the scripted faults of tests/dist/collective/faults_test.cc, of
# which the tests run 30: processes killed and stopped at random steps and
# phases, over all transports and in all ways of an all-reduce, each time with
# the same expectation of every survivor. About two seconds each.
#
# usage: scripts/faults.sh [COUNT [SEED]]   (200 and 1; of build/release, or
# SLUICE_BUILD)
set -eu

build=${SLUICE_BUILD:-$(dirname "$0")/../build/release}
SLUICE_TEST_FAULTS=${1:-200} SLUICE_TEST_SEED=${2:-1} \
  exec "$build/bin/dist_collective_tests" \
  --test-case='every survivor names the lost rank*'
