/** Handlers of typed tasks, for threads or inline. */
import { defineTask } from "../../dist/entries/task.js";

export const increment = defineTask("increment");
export const incremented = increment.handler(({ n }) => ({ n: n + 1 }));
