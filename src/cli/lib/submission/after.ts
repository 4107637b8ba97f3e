/** `--after`: the jobs that a new job waits for. */
import type { Command } from "commander";
import { badInput, LaboroError } from "../../../base/errors.js";
import type { Client } from "../../../client/client.js";
import type { Submission } from "../../../model/job-input.js";
import { collect } from "../option-parsers.js";

export const addAfterOption = <T extends Command>(command: T): T =>
  command.option(
    "--after <job>",
    "start after the success of this job: 7, last, a name; any:7 after its end, each:7 task i after task i; may be repeated",
    collect,
    [],
  );

/** What `any:` and `each:` before a job mean. */
export const dependencyKind = (kind: string | undefined): { any?: true; each?: true } =>
  kind === "any" ? { any: true } : kind === "each" ? { each: true } : {};

/** `last` is the newest job, and a name the newest job of that name. */
export async function dependenciesOf(client: Client, after: readonly string[]): Promise<Pick<Submission, "after">> {
  const jobs = await Promise.all(
    after.map(async (text) => {
      const [, kind, which = ""] = /^(?:(any|each):)?(.*)$/s.exec(text) ?? [];
      if (which === "")
        throw badInput(`--after: expected a job, such as 7, last, its name, any:7 or each:7, got ${text}`);
      return {
        job: /^\d+$/.test(which) ? Number(which) : await newestJob(client, which, text),
        ...dependencyKind(kind),
      };
    }),
  );
  return jobs.length === 0 ? {} : { after: jobs };
}

async function newestJob(client: Client, which: string, text: string): Promise<number> {
  const [newest] = (await client.jobs({ limit: 1, ...(which === "last" ? {} : { name: which }) })).jobs;
  if (newest !== undefined) return newest.id;
  const none = which === "last" ? "there is no job yet" : `there is no job of the name ${which}`;
  throw new LaboroError("LABORO_NO_SUCH_JOB", `--after ${text}: ${none}`);
}
