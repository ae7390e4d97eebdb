# shellcheck shell=bash
# servers.sh - starts and stops embd processes; sourced by demo.sh and check.sh (bash).
#
#   start_server NAME ARG...   starts $EMBD_BIN/embd and waits until it listens. What it prints is in
#                              $WORK/NAME.out, its log in $WORK/NAME.log. Returns its exit status when it ends
#                              before it listens (3: it cannot)
#   server_address NAME        prints the address of its first shard
#   stop_servers               ends those that still run, by pid, and waits; 1 if one did not end with status 0
#
# The caller sets EMBD_BIN (folder of the programs) and WORK (a folder of its own).

declare -A server_pids=()

start_server() {
    local name=$1 pid
    shift
    mkfifo "$WORK/$name.fifo"
    # In a session of its own, so that Ctrl-C reaches the script alone, which then stops the servers.
    setsid "$EMBD_BIN/embd" "$@" --ready-fd 3 3>"$WORK/$name.fifo" \
        </dev/null >"$WORK/$name.out" 2>"$WORK/$name.log" &
    pid=$!
    server_pids[$name]=$pid
    # The pipe brings a line, or ends without one when the process has ended.
    if read -r _ <"$WORK/$name.fifo"; then
        rm -f "$WORK/$name.fifo"
        return 0
    fi
    rm -f "$WORK/$name.fifo"
    unset "server_pids[$name]"
    wait "$pid"
}

server_address() { grep -oE '127\.0\.0\.1:[0-9]+' "$WORK/$1.out" | head -n 1; }

# stop_server NAME: asks it to finish, kills it after 20 seconds, returns its exit status.
stop_server() {
    local name=$1 pid=${server_pids[$1]} status=0 tick
    unset "server_pids[$name]"
    kill -TERM "$pid" 2>/dev/null
    for ((tick = 0; tick < 200; tick++)); do
        kill -0 "$pid" 2>/dev/null || break
        sleep 0.1
    done
    kill -KILL "$pid" 2>/dev/null && echo "embd $name (process $pid) had to be killed" >&2
    wait "$pid" || status=$?
    [ $status = 0 ] || echo "embd $name (process $pid) ended with status $status" >&2
    return $status
}

stop_servers() {
    local name result=0
    for name in "${!server_pids[@]}"; do
        stop_server "$name" || result=1
    done
    return $result
}
