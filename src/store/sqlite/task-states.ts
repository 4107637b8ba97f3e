import type { TaskEnd } from "../../model/outcome.js";

/** How a task ended, by the number that the tables have for it. */
export const STATES: readonly TaskEnd[] = ["succeeded", "failed", "cancelled"];

export const stateNumber = (state: TaskEnd): number => STATES.indexOf(state);

/** Where to look for results of one state, and how to say so. */
export interface StateQuery {
  readonly table: string;
  readonly condition: string;
}

export const ANY_STATE: StateQuery = { table: "result", condition: "true" };

/**
 * What is no success has an index, which serves only a query that says so itself. Named, because without statistics SQLite takes the
 * primary key for as good.
 */
export const stateQuery = (state: TaskEnd): StateQuery =>
  state === "succeeded"
    ? { table: "result", condition: "state = 0" }
    : { table: "result INDEXED BY result_unsuccessful", condition: `state <> 0 AND state = ${stateNumber(state)}` };
