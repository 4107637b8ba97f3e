/** `laboro scale0`: the worker and the client of Scale0. */
import { Command } from "commander";
import { request } from "./scale0/request.js";
import { worker } from "./scale0/worker.js";

export function scale0(): Command {
  return new Command("scale0")
    .description("Speak Scale0: a worker that offers programs as services, and a client that asks for them.")
    .usage("worker|request [options]")
    .addCommand(worker())
    .addCommand(request())
    .addHelpText("after", EXAMPLES);
}

const EXAMPLES = `
Examples:
  laboro scale0 worker --service upper='tr a-z A-Z'
  laboro scale0 request upper hello`;
