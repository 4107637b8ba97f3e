/** The states of a job as options name them: `--state failed,cancelled`. */
import { InvalidArgumentError } from "commander";
import type { OperationInput } from "../../broker/operations/index.js";
import { suggestion } from "./suggest.js";
import type { JobView } from "./views.js";

export type JobStateName = JobView["state"];
/** What `jobs` can be asked for. */
export type JobFilter = Pick<OperationInput<"jobs">, "state" | "name" | "pool">;

export const OPEN_STATES = ["held", "blocked", "waiting", "running"] as const satisfies readonly JobStateName[];
export const ENDED_STATES = ["succeeded", "failed", "cancelled"] as const satisfies readonly JobStateName[];
export const JOB_STATES = [...OPEN_STATES, ...ENDED_STATES] as const;

/** For commander; may be given more than once. */
export const stateParser =
  <State extends JobStateName>(allowed: readonly State[]) =>
  (text: string, before: readonly State[] = []): readonly State[] => [
    ...before,
    ...text.split(",").map((word) => {
      const state = allowed.find((one) => one === word.trim());
      if (state !== undefined) return state;
      const hint = suggestion(word.trim(), allowed) || `; there are ${allowed.join(", ")}`;
      throw new InvalidArgumentError(`no state ${JSON.stringify(word)}${hint}`);
    }),
  ];
