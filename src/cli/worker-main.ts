/**
 * `laboro worker` alone, which becomes one file: dist/worker-bundle/laboro-worker.cjs. It is copied to machines that
 * have Node and no laboro, and takes the options of `laboro worker`.
 */
import { isMainThread } from "node:worker_threads";
import { CommanderError } from "commander";
import { asLaboroError } from "../base/errors.js";
import { packageVersion } from "../base/package.js";
import { findBroker } from "../client/find-broker.js";
import { dial } from "../protocols/laboro/dial.js";
import { LINK_VERSION } from "../protocols/laboro/messages.js";
import { HANDLER_PROCESS } from "../worker/threads/hosts.js";
import { exitCodeOfUsage, isVerbose, reportFailure, usageText } from "./lib/failures.js";
import { watchOutputErrors } from "./lib/interrupt.js";
import { worker } from "./verbs/worker.js";

// The threads and processes of --handlers run this file, too.
const [first, ...others] = process.argv.slice(2);
if (!isMainThread || first === HANDLER_PROCESS) void import("../worker/threads/handler-thread.js");
else if (first === "check") checkBroker(others);
else void runWorker(process.argv.slice(2));

/** For `laboro doctor HOST`: `check @JOIN-FILE TUNNELS` says why no worker could join from here, or nothing. */
function checkBroker([broker, tunnels = ""]: readonly string[]): void {
  const end = (text: string): never => {
    process.stdout.write(text);
    process.exit(text === "" ? 0 : 1);
  };
  try {
    dial<"client">({
      ...{ from: "client", tunnels, ...findBroker({ broker }) },
      onOpen: (connection) => connection.send({ type: "HELLO", version: LINK_VERSION, name: "doctor" }),
      onMessages: () => end(""),
      onDisconnected: ({ error }) => end(error?.message ?? "the broker closed the connection"),
      onRefused: ({ message }) => end(message),
      onUnreachable: ({ message }) => end(message),
    });
  } catch (cause) {
    end(asLaboroError(cause).message);
  }
}

async function runWorker(args: readonly string[]): Promise<void> {
  watchOutputErrors();
  const command = worker()
    .name("laboro-worker")
    .version(packageVersion(), "-V, --version", "print the version")
    .exitOverride()
    .showHelpAfterError(false)
    .configureOutput({ outputError: (text, write) => write(usageText(text)) });
  try {
    await command.parseAsync(args, { from: "user" });
  } catch (cause) {
    process.exitCode = cause instanceof CommanderError ? exitCodeOfUsage(cause) : reportFailure(cause, isVerbose(args));
  }
}
