/** `laboro` as a process: its arguments and its streams. */
import { watchOutputErrors } from "./lib/output-errors.js";
import { runProgram } from "./lib/program.js";

watchOutputErrors();
void runProgram(process.argv.slice(2));
