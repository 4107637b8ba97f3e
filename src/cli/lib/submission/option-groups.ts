/** The help of `run`, `submit` and `schedule` lists their options by what they are about. */
import type { Command } from "commander";

const GROUPS: Readonly<Record<string, string>> = {
  "Entries:":
    "--array --each-line --null --delimiter --colsep --from-json --max-args --max-replace-args --max-lines --context-replace --header --shuf -r",
  "Job:": "--name --file --open --job --hold --in --at --after --key --key-for --if-exists --keep --keep-failed",
  "Command:": "--dir --env --stdin --script --service --shell --nice",
  "Slots and workers:":
    "--slots --resource --priority --max-running --limit --pool --tag --time-request --jobs --delay --load --memfree --ssh --stay --archive",
  "Failures:":
    "--time-limit --timeout --retries --retry-wait --retry-factor --retry-max --retry-jitter --retry-on --never-on --crash-limit --max-fails --halt",
  "Output:":
    "--log --output-cap --output --stdout --stderr --results --keep-order --tag-output --line-buffer --ungroup --joblog --json",
  "Files:": "--send --return --cleanup",
};

const GROUP_OF = new Map(
  Object.entries(GROUPS).flatMap(([group, names]) => names.split(" ").map((name) => [name, group])),
);

/** Options of no group are last, under "Options:". */
export function groupOptions(command: Command): Command {
  for (const option of command.options) {
    const group = GROUP_OF.get(option.long ?? option.short ?? "");
    if (group !== undefined) option.helpGroup(group);
  }
  return command;
}
