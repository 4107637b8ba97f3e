/** `laboro` as a process: its arguments and its streams. */
import { EXIT } from "./lib/failures.js";
import { runProgram } from "./lib/program.js";

// A reader that has seen enough (`| head`) is no failure.
for (const stream of [process.stdout, process.stderr]) {
  stream.on("error", (error: NodeJS.ErrnoException) => {
    if (error.code === "EPIPE") process.exit(process.exitCode ?? EXIT.ok);
    process.stderr.write(`laboro: cannot write: ${error.message}\n`);
    process.exit(EXIT.failed);
  });
}

await runProgram(process.argv.slice(2));
