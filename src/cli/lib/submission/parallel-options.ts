/** Options of GNU parallel that laboro does not have or names differently: the error says what to use instead. */
import { Command } from "commander";

const NO_MATCH = "laboro has nothing like it; docs/guide/gnu-parallel.md lists what it has";

const HINTS: Readonly<Record<string, string>> = {
  "-a, --arg-file": "use --each-line FILE, or :::: FILE after the command",
  "-P, --max-procs": "use --jobs N",
  "-n, -N, -L, -m, -X, --max-args, --max-replace-args, --max-lines, --xargs, --max-line-length-allowed":
    "a task has one entry; several values are columns: ::: a b :::+ 1 2, or --colsep",
  "-I, --replace": "the placeholder is always {}",
  "-q, --quote": "give the command as several words: then there is no shell",
  "-r, --no-run-if-empty": "leave it out: an empty list is always nothing to do",
  "-S, --sshlogin, --sshloginfile, --slf, --controlmaster, --transferfile, --return, --trc, --cleanup, --onall, --nonall":
    "start laboro worker on the other machines; see docs/guide/many-machines.md",
  "-u, --ungroup, --lb, --line-buffer, --linebuffer, --ll, --latest-line, --latestline":
    "leave it out: output is printed when its task ends; laboro logs -f JOB shows it meanwhile",
  "-v, -t, --verbose": "use --dry-run to see the commands, --joblog FILE to keep them",
  "--bar, --eta, --progress": "leave it out: a terminal always shows progress",
  "--block, --pipe, --pipepart, --pipe-part, --spreadstdin, --recstart, --recend, --round-robin, --roundrobin, --tee, --cat, --fifo":
    "laboro does not split input: split it into files, and give the files as entries",
  "--citation, --will-cite, --no-notice": "leave it out: laboro prints no such notice",
  "--delay": "use --max-running N to run fewer tasks at a time",
  "--dryrun, --dr": "use --dry-run",
  "--files, --results, --res": "leave it out: laboro logs JOB.TASK shows kept output; --output PATH writes it to files",
  "--group, --silent": "leave it out: output is grouped by task",
  "--halt, --halt-on-error": "use --max-fails N: after more than N failures, waiting tasks are cancelled",
  "--header": "leave out the first line, as with tail -n +2",
  "--keeporder": "use --keep-order",
  "--link, --xapply": "use :::+ between the lists",
  "--load, --noswap, --memfree, --memsuspend": "the worker limits what it takes: laboro worker --min-memory SIZE",
  "--nice": "start the command with nice",
  "--plus, --rpl": "laboro has {} {.} {/} {//} {/.} {#} {%} and {1} {2}; the shell does the rest",
  "--resume, --resume-failed, --retry-failed":
    "the same command resumes by itself; laboro rerun last --failed runs failed tasks again",
  "--semaphore, --sem, --fg, --bg": "use laboro submit, with --max-running in one job",
  "--shebang, --hashbang": "use --script FILE",
  "--shuf": "shuffle the list: ::: $(shuf -e …), or shuf FILE | laboro run …",
  "--tagstring, --ctag, --ctagstring": "use --tag-output, which puts the entry before each line",
  "--termseq": "Ctrl-C lets running tasks end; the second one stops them",
  "--timeout": "use --time-limit 60s",
  "--trim": "trim the list before: sed 's/^ *//'",
  "--wd, --workdir": "use --dir DIR",
  "-E, -J, -i, -l, -p, -s, -x, --arg-file-sep, --arg-sep, --basefile, --bf, --color, --compress, --eof, --filter":
    NO_MATCH,
  "--hostgroup, --interactive, --limit, --max-chars, --parens, --process-slot-var, --profile, --session": NO_MATCH,
  "--shell-quote, --sql, --sqlandworker, --sqlmaster, --sqlworker, --sshdelay, --template, --tmpl": NO_MATCH,
  "--tempdir, --tmpdir, --transfer, --tty": NO_MATCH,
};

const HINT_OF = new Map(
  Object.entries(HINTS).flatMap(([names, hint]) => names.split(", ").map((name) => [name, hint])),
);

/** `typed` may contain a value: `--halt=now,fail=1`, `-n2`. */
function parallelHint(typed: string): string | undefined {
  return HINT_OF.get(typed.startsWith("--") ? typed.replace(/=.*/s, "") : typed.slice(0, 2));
}

/** A command whose users may come from GNU parallel. */
export class ParallelCommand extends Command {
  override parseOptions(args: string[]): ReturnType<Command["parseOptions"]> {
    const parsed = super.parseOptions(args);
    const [unknown] = parsed.unknown;
    const hint = unknown?.startsWith("-") === true ? parallelHint(unknown) : undefined;
    if (unknown !== undefined && hint !== undefined) {
      this.error(`error: ${unknown} is an option of GNU parallel; ${hint}`, { code: "commander.unknownOption" });
    }
    return parsed;
  }
}
