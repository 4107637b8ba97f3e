/** Listeners for the old protocols that an operator asked for: how they are written, and which are refused. */
import { LaboroError } from "../../base/errors.js";
import { isLoopback } from "../../base/addresses.js";
import { LISTENER_NAMES, type Listener, type ListenerName, type ListenerAddress } from "./listener.js";

/** Where each opens unless told otherwise. */
const DEFAULT_PORTS: Readonly<Record<ListenerName, readonly number[]>> = {
  fuq: [5430],
  fuq1: [5431],
  runexp: [5433],
  "round-robin": [6714],
  scale0: [8080, 8081, 8082],
};

/** A door that was asked for. */
export interface ListenerRequest extends ListenerAddress {
  readonly name: ListenerName;
  /** Of its workers, where not that of all doors. */
  readonly pool?: string;
}

export interface OpenListener extends Listener {
  readonly name: ListenerName;
}

const LOOPBACK = "127.0.0.1";

/** `NAME`, `all`, `NAME=HOST`, `NAME=HOST:PORT`, `NAME=HOST:PORT,PORT,PORT` or `NAME=PORT`. */
export function parseListener(text: string): readonly ListenerRequest[] {
  const [name = "", place] = splitOnce(text, "=");
  if (name === "all" && place === undefined) return LISTENER_NAMES.map((one) => ({ name: one, ...defaultAddress(one) }));
  const known = LISTENER_NAMES.find((one) => one === name);
  if (known === undefined) {
    throw new LaboroError("LABORO_BAD_INPUT", `there is no door ${name}: ${LISTENER_NAMES.join(", ")} or all`);
  }
  return [{ name: known, ...(place === undefined ? defaultAddress(known) : parseAddress(known, place)) }];
}

const defaultAddress = (name: ListenerName): ListenerAddress => ({ host: LOOPBACK, ports: DEFAULT_PORTS[name] });

function parseAddress(name: ListenerName, text: string): ListenerAddress {
  const found = /^(?:(?:\[(?<v6>[^\]]+)\]|(?<host>[^:,[\]]*[^:,[\]\d][^:,[\]]*))(?::(?=\d)|$))?(?<ports>[\d,]+)?$/.exec(
    text,
  );
  const host = found?.groups?.v6 ?? found?.groups?.host ?? LOOPBACK;
  const ports = found?.groups?.ports?.split(",").map(Number);
  const wanted = DEFAULT_PORTS[name].length;
  if (found === null || ports?.some((port) => Number.isNaN(port) || port > 65_535) || text === "") {
    throw new LaboroError("LABORO_BAD_INPUT", `--door ${name}=${text}: expected ADDRESS, PORT or ADDRESS:PORT`);
  }
  if (ports !== undefined && ports.length !== wanted) {
    throw new LaboroError(
      "LABORO_BAD_INPUT",
      `--door ${name}=${text}: this door has ${wanted} ports, not ${ports.length}`,
    );
  }
  return { host, ports: ports ?? DEFAULT_PORTS[name] };
}

function splitOnce(text: string, by: string): [string, string | undefined] {
  const at = text.indexOf(by);
  return at < 0 ? [text, undefined] : [text.slice(0, at), text.slice(at + by.length)];
}

/** Those who reach one of these doors are let in without a word: so only this machine does, unless it was said in so many words. */
export function checkListeners(listeners: readonly ListenerRequest[], insecure: boolean): void {
  for (const { name, host } of listeners) {
    if (insecure || isLoopback(host)) continue;
    throw new LaboroError(
      "LABORO_BAD_INPUT",
      `door ${name} has no authentication, and other machines can reach ${host}: --insecure opens it all the same`,
    );
  }
  const twice = listeners.find(({ name }, at) => listeners.findIndex((other) => other.name === name) !== at);
  if (twice !== undefined) throw new LaboroError("LABORO_BAD_INPUT", `door ${twice.name} is named twice`);
}
