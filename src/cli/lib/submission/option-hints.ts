/**
 * For options of GNU parallel, sbatch and hq that laboro lacks or names differently, the error says what to use
 * instead.
 */
import { Command } from "commander";

const NO_MATCH = "laboro has nothing like it; docs/guide/gnu-parallel.md lists what it has";

const HINTS: Readonly<Record<string, string>> = {
  "-a, --arg-file": "use --each-line FILE, or :::: FILE after the command",
  "-P, --max-procs": "use --jobs N",
  "-m, --xargs": "use -X, which gives each task as many values as fit; -X -j 1 fills each line",
  "-I, -i, -U, --replace": "the placeholder is always {}",
  "--er, --extensionreplace, --bnr, --basenamereplace, --dnr, --dirnamereplace, --bner, --basenameextensionreplace, --seqreplace, --slotreplace":
    "the placeholders are always {.} {/} {//} {/.} {#} {%}",
  "--number-of-cores, --number-of-cpus, --number-of-sockets, --number-of-threads": "use nproc",
  "-q, --quote": "give the command as several words: then there is no shell",
  "--no-run-if-empty": "leave it out: an empty list is always nothing to do",
  "--sshlogin, --sshloginfile, --slf": "use --ssh HOST,USER@HOST:PORT/SLOTS; --ssh @FILE reads them from a file",
  "--controlmaster, --onall, --nonall": "--ssh names the machines; see docs/guide/ssh.md",
  "-u, --ungroup, --lb, --line-buffer, --linebuffer, --line-buffered, --linebuffered, --ll, --latest-line, --latestline":
    "use laboro run --line-buffer, or laboro logs -f JOB",
  "-v, -t, --verbose": "use --dry-run to see the commands, --joblog FILE to keep them",
  "--bar, --eta, --progress": "leave it out: a terminal always shows progress",
  "--block, --pipe, --pipepart, --pipe-part, --spreadstdin, --recstart, --recend, --round-robin, --roundrobin, --tee, --cat, --fifo":
    "laboro does not split input: split it into files, and give the files as entries",
  "--citation, --will-cite, --wc, --bibtex, --no-notice": "leave it out: laboro prints no such notice",
  "--csv": "use --colsep , which reads no quotes; or make a JSON array, for --from-json",
  "--delay": "on submit: laboro limit set NAME --rate 1/2s, and --limit NAME",
  "-j, --jobs": "on submit: --max-running N; the slots are the workers', see laboro worker --slots",
  "--joblog": "on submit: laboro tasks JOB --json, once it has ended",
  "--load, --memfree": "on submit: the workers have them, as laboro worker --max-load and --min-memory",
  "--dryrun, --dr": "use --dry-run",
  "--files, --res": "use --results DIR, or laboro logs JOB.TASK",
  "-k, --keep-order, --no-keep-order, --results, --tag-output": "on submit: laboro logs JOB, which is in order",
  "--group-by": "group the list before, with one line per group; -n N gives each task N values",
  "--skip-first-line": "use tail -n +2 FILE | laboro run, or --header : which reads names from it",
  "--tmux, --tmuxpane": "use laboro logs -f JOB, or laboro run --line-buffer",
  "--group, --silent": "leave it out: output is grouped by task",
  "--halt-on-error": "use --halt",
  "--keeporder": "use --keep-order",
  "--link, --xapply": "use :::+ between the lists",
  "--noswap, --memsuspend": "use --memfree SIZE, and --load N: no task starts meanwhile",
  "--plus, --rpl": "laboro has {} {.} {/} {//} {/.} {#} {%} and {1} {2}; the shell does the rest",
  "--resume, --resume-failed, --retry-failed":
    "the same command resumes by itself; laboro rerun last --failed runs failed tasks again",
  "--semaphore, --sem, --fg, --bg": "use laboro limit set NAME --running N, and laboro submit --limit NAME",
  "--shebang, --hashbang": "use --script FILE",
  "--tagstring, --ctag, --ctagstring": "use --tag-output, which puts the entry before each line",
  "--termseq": "Ctrl-C lets running tasks end; the second one stops them",
  "--sqlandworker, --sqlmaster, --sqlworker": "use laboro serve and laboro worker",
  "--sshdelay": "leave it out: at most six machines log in at the same time",
  "--record-env": "use --env NAME for each variable",
  "--rsync-opts": "leave it out: --send and --return need no rsync",
  "--trim": "trim the list before: sed 's/^ *//'",
  "--wd, --workdir": "use --dir DIR",
  "-E, -J, -l, -p, -s, -x, --arg-file-sep, --arg-sep, --color, --compress, --eof, --filter": NO_MATCH,
  "--embed, --hostgroup, --interactive, --max-chars, --max-line-length-allowed, --parens, --process-slot-var, --profile, --session":
    NO_MATCH,
  "--shell-quote, --sql, --template, --tmpl": NO_MATCH,
  "--tempdir, --tmpdir, --tty": NO_MATCH,
};

const NO_BATCH_MATCH = "laboro has nothing like it; docs/guide/from-slurm.md and from-hyperqueue.md list what it has";

/** Options of sbatch and hq submit. */
const BATCH_HINTS: Readonly<Record<string, string>> = {
  "-a": "use --array NUMBERS, or --each-line FILE",
  "-b, --begin": "use --in DURATION or --at TIME",
  "-c, --cpus-per-task, --cpus": "use --slots N",
  "-C, --constraint": "use --tag TAG",
  "-D, --chdir, --cwd": "use --dir DIR",
  "-e, --error": "use --stderr PATH, or laboro logs JOB.TASK --stream stderr",
  "-G, --mem, --gres, --gpus, --licenses, --gpus-per-node, --gpus-per-socket, --gpus-per-task, --mem-per-cpu, --mem-per-gpu":
    "use --resource gpu=1, or mem=8192 (MiB)",
  "-H": "use --hold",
  "-J, --job-name, --comment": "use --name NAME",
  "--input": "use --stdin FILE",
  "-o": "use --output PATH, or laboro logs JOB.TASK",
  "-p, --partition": "use --pool NAME",
  "-t, --time": "use --time-limit; a bare number is seconds",
  "-W, --wait, --progress": "use laboro run, or laboro wait last after it",
  "--dependency": "use --after JOB, any:JOB or each:JOB",
  "--directives": "give the options in the command line, or in a job file",
  "--export, --export-file, --get-user-env": "use --env NAME=VALUE, or --env NAME for a copy",
  "--nodes": "a task runs on one node",
  "--ntasks, --ntasks-per-core, --ntasks-per-node, --ntasks-per-socket":
    "a task is one process; --slots N if it uses N cores, --array 1-N for N tasks",
  "--output-mode": "use --json; without it submit prints the number of the job alone",
  "-Q, --parsable, --quiet": "leave it out: submit prints the number of the job alone",
  "--pin": "use taskset in the command",
  "--no-requeue": "use --crash-limit 1",
  "--requeue": "use --retries N after a failed exit; tasks of a lost worker run again by themselves",
  "--time-min": "use --time-request DURATION",
  "--test-only": "use laboro run --dry-run",
  "--wrap": "give the line as one word: laboro submit -- 'a {} | b'",
  "-A, -q, -w, -x, --account, --exclude, --exclusive, --mail-type, --mail-user, --nodelist, --qos, --reservation":
    NO_BATCH_MATCH,
  "-F, -M, -O, --bb, --bbf, --cluster-constraint, --clusters, --container, --contiguous, --core-spec, --cores-per-socket":
    NO_BATCH_MATCH,
  "--cpu-freq, --cpus-per-gpu, --deadline, --delay-boot, --distribution, --gid, --gpu-bind, --gpu-freq, --gres-flags":
    NO_BATCH_MATCH,
  "--ignore-pbs, --kill-on-invalid-dep, --mcs-label, --mem-bind, --mincpus, --no-kill, --nodefile, --open-mode":
    NO_BATCH_MATCH,
  "--overcommit, --oversubscribe, --power, --propagate, --reboot, --signal, --sockets-per-node, --spread-job":
    NO_BATCH_MATCH,
  "--switches, --thread-spec, --threads-per-core, --tmp, --uid, --use-min-nodes, --wckey": NO_BATCH_MATCH,
};

const hintsBy = (table: Readonly<Record<string, string>>): Map<string, string> =>
  new Map(Object.entries(table).flatMap(([names, hint]) => names.split(", ").map((name) => [name, hint])));
const HINT_OF = hintsBy(HINTS);
const BATCH_HINT_OF = hintsBy(BATCH_HINTS);

/** The name of an option that may contain a value: `--halt=now,fail=1`, `-n2`. */
const nameOf = (typed: string): string => (typed.startsWith("--") ? typed.replace(/=.*/s, "") : typed.slice(0, 2));

/** A command whose users may come from GNU parallel, and those of `submit` from sbatch or hq. */
export class ParallelCommand extends Command {
  override parseOptions(args: string[]): ReturnType<Command["parseOptions"]> {
    const parsed = super.parseOptions(args);
    const [unknown = ""] = parsed.unknown;
    const name = nameOf(unknown);
    const code = "commander.unknownOption";
    const fixed = this.registeredArguments.filter(({ variadic }) => !variadic);
    if (unknown.startsWith("-") && parsed.operands.length > fixed.length && fixed.length > 0)
      this.error(`error: unknown option '${unknown}'; if it belongs to the command, put -- before the command`, {
        code,
      });
    const hint = unknown.startsWith("-") ? HINT_OF.get(name) : undefined;
    const other = BATCH_HINT_OF.get(name);
    if (hint !== undefined && (other === undefined || this.name() === "run"))
      this.error(`error: ${unknown} is an option of GNU parallel; ${hint}`, { code });
    if (other !== undefined) this.error(`error: unknown option '${unknown}'; ${other}`, { code });
    return parsed;
  }
}
