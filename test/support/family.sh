#!/bin/sh
# A process, its child and its grandchild, all in one group: each writes its id to the file $1 and stays. With $2 = deaf,
# none of them hears SIGTERM. $3 is how many generations follow.
[ "$2" = deaf ] && trap '' TERM
echo $$ >> "$1"
[ "${3-2}" = 0 ] && exec sleep 60
/bin/sh "$0" "$1" "$2" $((${3-2} - 1)) &
wait
