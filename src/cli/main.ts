/** `laboro` as a process: its arguments and its streams. */
import { watchOutputErrors } from "./lib/interrupt.js";
import { runProgram } from "./lib/program.js";

watchOutputErrors();
// When nothing is left to do. It ends without freeing what the system frees anyway.
process.once("beforeExit", () => process.exit());
void runProgram(process.argv.slice(2));
