/** What happens when standard output or standard error cannot be written. */
import { EXIT } from "./failures.js";

type OutputFailure = (error: NodeJS.ErrnoException) => void;

let handler: OutputFailure = endProcess;

/** For the process as a whole, once. A reader that has seen enough (`| head`) is no failure. */
export function watchOutputErrors(): void {
  for (const stream of [process.stdout, process.stderr]) {
    stream.on("error", (error: NodeJS.ErrnoException) => handler(error));
  }
}

/** For a verb that has nothing to stop. */
export function endProcess(error: NodeJS.ErrnoException): never {
  if (error.code === "EPIPE") process.exit(process.exitCode ?? EXIT.ok);
  process.stderr.write(`laboro: cannot write: ${error.message}\n`);
  process.exit(EXIT.failed);
}

/** For a verb that has something to stop before it ends. Returns the function that removes the handler. */
export function onOutputError(handle: OutputFailure): () => void {
  handler = handle;
  return () => {
    // The process ends on its own now; errors of what is still to be written do not matter.
    handler = () => {};
  };
}
