/** The typed handlers of the long day's worker, for its threads. */
import { defineTask } from "../../../dist/entries/task.js";

export const square = defineTask("square").handler(({ n }) => ({ n, square: n * n, text: "ü".repeat(n % 50) }));
