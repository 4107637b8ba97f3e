#!/bin/sh
# A shell script as a service: a worker that answers requests for "wordcount".
#
#   laboro serve                               in one terminal
#   sh examples/service.sh                     in another
#   laboro request wordcount 'some words'      in a third: {"words":2}
#
# Started for each request (the default): the body is standard input, standard output the reply. A non-zero exit is an
# error to the asker, with the end of standard error as its text:
#
#   laboro worker --service wordcount='printf "{\"words\":%d}\n" "$(wc -w)"'
#
# Kept, as below, it reads one line a request and writes one line a reply, and what is slow to load is loaded once for
# each slot. A reply must leave the program at once: mind the buffers of sed, awk and python (sed -u, awk fflush(), python -u).
set -eu

case ${1-} in
answer)
  # Slow preparations come here.
  while IFS= read -r line; do
    # shellcheck disable=SC2086 # the words are to be split
    set -f && set -- $line
    printf '{"words":%d}\n' "$#"
  done
  ;;
*)
  exec "${LABORO:-laboro}" worker --slots 4 --service-mode lines --service wordcount="sh '$0' answer" "$@"
  ;;
esac
