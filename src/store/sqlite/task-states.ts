import type { TaskEnd } from "../../model/outcome.js";

/** How a task ended, by the number that the tables have for it. */
export const STATES: readonly TaskEnd[] = ["succeeded", "failed", "cancelled"];

export const stateNumber = (state: TaskEnd): number => STATES.indexOf(state);

/** The table, with an index hint, and the condition for results of one state. */
export interface StateQuery {
  readonly table: string;
  readonly condition: string;
}

export const ANY_STATE: StateQuery = { table: "result", condition: "true" };

/**
 * Results that are no success have a partial index, which serves only a query with the condition of the index. It is named, because
 * without statistics SQLite would use the primary key.
 */
export const stateQuery = (state: TaskEnd): StateQuery =>
  state === "succeeded"
    ? { table: "result", condition: "state = 0" }
    : { table: "result INDEXED BY result_unsuccessful", condition: `state <> 0 AND state = ${stateNumber(state)}` };
