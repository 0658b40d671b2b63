#!/usr/bin/env bash
# Runs a program written for ps-lite on this machine: one scheduler, and as many servers and workers as asked for. Ends as the first
# of them that fails does, and takes the others with it.
#
# LIBRA_WORKER_PROCESSES: how many processes the workers are, if a process has several customers (default: as many as workers).
# LIBRA_ROLE_ARGUMENT=1: the role is the last argument of each process.
set -u
if [ $# -lt 3 ]; then
    echo "usage: $0 SERVERS WORKERS PROGRAM [ARGUMENTS..]" >&2
    exit 2
fi
export DMLC_NUM_SERVER=$1 DMLC_NUM_WORKER=$2
shift 2
export DMLC_PS_ROOT_URI=${DMLC_PS_ROOT_URI:-127.0.0.1}

free_port() {
    # One without a listener, of those that the system does not give out by itself.
    local port
    for _ in $(seq 100); do
        port=$((10000 + (RANDOM * 32768 + RANDOM) % 20000))
        if ! (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
            echo "$port"
            return
        fi
    done
}
export DMLC_PS_ROOT_PORT=${DMLC_PS_ROOT_PORT:-$(free_port)}

processes=()
end_all() {
    # Only those that still run: the number of one that has ended may belong to another process by now.
    for process in $(jobs -rp); do
        kill -KILL "$process" 2>/dev/null
    done
}
trap 'end_all; exit 130' INT TERM

start() {
    local role=$1
    shift
    if [ -n "${LIBRA_ROLE_ARGUMENT:-}" ]; then
        DMLC_ROLE=$role "$@" "$role" &
    else
        DMLC_ROLE=$role "$@" &
    fi
    processes+=($!)
}

start scheduler "$@"
for ((i = 0; i < DMLC_NUM_SERVER; ++i)); do start server "$@"; done
for ((i = 0; i < ${LIBRA_WORKER_PROCESSES:-$DMLC_NUM_WORKER}; ++i)); do start worker "$@"; done

# `wait -n` would miss one of two that end at the same time: who runs is looked up, and each is waited for by its number.
worst=0
deadline=
waiting=("${processes[@]}")
while [ ${#waiting[@]} -gt 0 ]; do
    running=" $(jobs -rp) "
    running=${running//$'\n'/ }
    left=()
    for process in "${waiting[@]}"; do
        if [[ $running == *" $process "* ]]; then
            left+=("$process")
            continue
        fi
        wait "$process"
        status=$?
        # The first failure is the cause; the others have a moment to say what they make of it.
        if [ $status -ne 0 ] && [ $worst -eq 0 ]; then
            worst=$status
            deadline=$((SECONDS + 5))
        fi
    done
    waiting=("${left[@]}")
    if [ -n "$deadline" ] && [ "$SECONDS" -ge "$deadline" ]; then
        end_all
        deadline=
    fi
    sleep 0.1
done 2>/dev/null
exit $worst
