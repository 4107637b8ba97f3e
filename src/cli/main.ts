/** `laboro` as a process: its arguments and its streams. */
import { watchOutputErrors } from "./lib/interrupt.js";
import { runProgram } from "./lib/program.js";

watchOutputErrors();
// Called when nothing is left to do. Exits at once: the system frees everything anyway.
process.once("beforeExit", () => process.exit());
void runProgram(process.argv.slice(2));
