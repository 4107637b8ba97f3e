/** Options of workers that offer programs as services. */
import { Option } from "commander";
import { badInput } from "../../base/errors.js";
import { SERVICE_MODES, type ServiceMode, type ServiceProgram } from "../../worker/programs/index.js";
import { collect } from "./option-parsers.js";

export interface ServiceOptions {
  readonly service: readonly string[];
  readonly serviceMode: ServiceMode;
}

export const serviceOption = (): Option =>
  new Option("--service <name=command>", "offer a program as a service; may be repeated")
    .argParser(collect)
    .default([]);

export const serviceModeOption = (): Option =>
  new Option(
    "--service-mode <mode>",
    "start the program for each request (once), or keep it running and exchange lines or length-prefixed messages",
  )
    .choices(SERVICE_MODES)
    .default("once");

export function programsOf(
  { service, serviceMode }: ServiceOptions,
  form = /^([^\s=]+)=(.*\S.*)$/s,
): Record<string, ServiceProgram> {
  const programs: Record<string, ServiceProgram> = {};
  for (const text of service) {
    const [, name, command] = form.exec(text) ?? [];
    if (name === undefined || command === undefined) throw badInput(`--service: expected NAME='COMMAND', got ${text}`);
    programs[name] = { command, mode: serviceMode };
  }
  return programs;
}
