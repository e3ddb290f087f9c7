#!/bin/sh
# Runs many scripted faults, of which the tests run some: processes killed and
# stopped at random steps and phases, each time with exact expectations.
#
# - COUNT jobs of all strategies (tests/apps/sluicerun/job_faults_test.cc):
#   workers, parameter servers, elastic jobs, pipelines, devices of one process.
#   None hangs, all name who is lost, and what is trained in the end has the bits
#   of what nothing befell, or has each example as often. Two to ten seconds
#   each. A number says all of a case; the first is SEED.
# - A tenth as many jobs over hosts, network name spaces, one of which is cut off
#   (cut_jobs_test.cc, which needs root and sshd), and as many whose links are
#   slow (slow_links_test.cc). About ten and twenty-five seconds each.
# - Then COUNT groups (tests/dist/collective/faults_test.cc), in all ways of an
#   all-reduce and over all transports. About two seconds each.
#
# usage: scripts/faults.sh [COUNT [SEED]]   (200 and 1; of build/release, or
# SLUICE_BUILD)
set -eu

bin=${SLUICE_BUILD:-$(dirname "$0")/../build/release}/bin
# The cases of a test take as long as they are many.
export SLUICE_TEST_SECONDS="${SLUICE_TEST_SECONDS:-14400}"
export SLUICE_TEST_SEED="${2:-1}"
export SLUICE_TEST_FAULTS="${1:-200}" SLUICE_TEST_JOB_FAULTS="${1:-200}"
SLUICE_TEST_CUT_FAULTS=$(((SLUICE_TEST_FAULTS + 9) / 10))
export SLUICE_TEST_CUT_FAULTS SLUICE_TEST_SLOW_LINKS="$SLUICE_TEST_CUT_FAULTS"
failed=0
"$bin/apps_tests" \
  --test-case='struck jobs end*,jobs whose host*,a slow link*' || failed=1
"$bin/dist_collective_tests" \
  --test-case='every survivor names the lost rank*' || failed=1
exit $failed
