#!/usr/bin/env bash
# The whole pipeline on this machine: what is here, what its links cost, the collective they carry
# best, the proof, the program, and the race against the MPI library. Usage: first_run.sh [FOLDER]
set -euo pipefail
out=${1:-out}
ranks=4
mkdir -p "$out"

step() {
    printf '\n%s\n$ %s\n' "$1" "${*:2}"
    "${@:2}"
}

step "1. What is this machine?" \
    ccctl detect -o "$out/topology.json"
step "2. What does each link between $ranks ranks cost?" \
    ccctl profile -n "$ranks" -o "$out/profile.json"
step "   The same for each pair of ranks, and the memory that carries their messages:" \
    ccctl show "$out/profile.json"
step "3. Which all-reduce fits these links best, and how far is it from the limit?" \
    ccctl synth --network "$out/profile.json" --collective all_reduce --size 16M -o "$out/schedule.json"
step "4. Is it right? An independent checker says." \
    ccctl verify "$out/schedule.json"
step "5. Make it a program for each rank." \
    ccctl compile "$out/schedule.json" -o "$out/program.json"
step "6. Run it on real buffers, check every element, race it against the MPI library." \
    ccctl bench "$out/schedule.json" -n "$ranks" -b 64K -e 16M -f 4 --vs mpi \
    --profile "$out/profile.json" -o "$out/report.json"

cat >"$out/README.txt" <<TEXT
What you just saw
  topology.json   the devices of this machine and the links between them
  profile.json    alpha (s) and beta (s/byte) of each link between $ranks ranks, measured
  schedule.json   an all-reduce synthesized for exactly those links, proven, with its bound
  program.json    the same as instructions for each rank
  report.json     its times beside the MPI library's own Allreduce, every element checked
"ours" is how many times faster than the library it was, and than predicted from the profile: from what the
ranks copy and add on the cores that there are ($(nproc) here for $ranks ranks).

What to do next
  ccctl show $out/schedule.json
      the schedule as a picture in time
  ccctl synth --network $out/profile.json --collective all_gather --size 16M
      another collective on the same links
  ccctl synth --network mesh:8x8 --alpha 0.5us --bandwidth 50GiB/s --collective all_reduce --size 64M
      a network that you do not have
  ccctl doctor
      what this machine lacks for the rest
ccctl is $(command -v ccctl); its manual is man/ccctl.1.
TEXT
printf '\n'
cat "$out/README.txt"
