/** The listener of an old protocol: its context, its options, and a listener on a plain TCP port. */
import { lookup } from "node:dns/promises";
import { createServer, type Socket } from "node:net";
import { hostname, networkInterfaces } from "node:os";
import { inUrl, isLoopback } from "../../base/addresses.js";
import type { ConnectionGuard } from "../../base/connection-guard.js";
import { badInput, errnoOf } from "../../base/errors.js";
import type { Log, PeerErrors } from "../../base/log.js";
import type { TracedConnections } from "../../base/traced-connections.js";
import type { Core } from "../core.js";

/** They open only when an operator names them. */
export const LISTENER_NAMES = ["fuq", "fuq1", "runexp", "round-robin", "scale0"] as const;
/** A protocol that has a listener of its own. */
export type ListenerName = (typeof LISTENER_NAMES)[number];

/** Where a listener opens: one port, or as many as its protocol has. 0 takes any free one. */
export interface ListenerAddress {
  /** The address that it binds. */
  readonly host: string;
  /** In the order of the protocol's ports. */
  readonly ports: readonly number[];
}

/** What an operator may set for a listener, beyond its address. */
export interface ListenerSettings {
  /** The pool of the workers that connect here; `default` if absent. */
  readonly pool?: string;
  /** round-robin: the names under which peers connect, if the address is not enough. */
  readonly identities?: readonly string[];
  /** round-robin: services by command; a command is a name, or `0x` and its bytes. */
  readonly services?: Readonly<Record<string, string>>;
  /** round-robin: after this time a request is answered with a failure and its slot is freed. */
  readonly requestTimeoutMs?: number;
  /** ZeroMQ listeners: the broker's secret key and the peers that may connect. If absent, any peer may connect. */
  readonly curve?: CurveKeys;
}

/** Keys as ZeroMQ writes them: 40 characters of Z85. */
export interface CurveKeys {
  readonly publicKey: string;
  readonly secretKey: string;
  /** Public keys of the peers that may connect. */
  readonly known: readonly string[];
}

export interface ListenerContext {
  readonly core: Core;
  readonly guard: ConnectionGuard;
  readonly log: Log;
  /** Logs the faults of peers, each once. */
  readonly peerErrors: PeerErrors;
  /** Records the messages of a connection while an operator inspects it. */
  readonly connections: TracedConnections;
  readonly settings: ListenerSettings;
}

export interface Listener {
  /** The open addresses, as a peer writes them. */
  readonly urls: readonly string[];
  /** Accepts no new peers and disconnects the others as the protocol requires. Resolves when all are closed. */
  close(): Promise<void>;
}

export type ListenerFactory = (context: ListenerContext, address: ListenerAddress) => Promise<Listener>;

// The listeners of old protocols that an operator requests with `--protocol`: their syntax, and which are refused.

const DEFAULT_PORTS: Readonly<Record<ListenerName, readonly number[]>> = {
  fuq: [5430],
  fuq1: [5431],
  runexp: [5433],
  "round-robin": [6714],
  scale0: [8080, 8081, 8082],
};

/** A listener to open. */
export interface ListenerRequest extends ListenerAddress {
  /** The protocol. */
  readonly name: ListenerName;
  /** The pool of its workers, if it differs from the pool of all listeners. */
  readonly pool?: string;
}

/** A listener that is open. */
export interface OpenListener extends Listener {
  /** The protocol. */
  readonly name: ListenerName;
}

const LOOPBACK = "127.0.0.1";

/** `NAME`, `all`, `NAME=HOST`, `NAME=HOST:PORT`, `NAME=HOST:PORT,PORT,PORT` or `NAME=PORT`. */
export function parseListener(text: string): readonly ListenerRequest[] {
  const [name = "", address] = splitOnce(text, "=");
  if (name === "all" && address === undefined)
    return LISTENER_NAMES.map((one) => ({ name: one, ...defaultAddress(one) }));
  const known = LISTENER_NAMES.find((one) => one === name);
  if (name === "all")
    throw badInput("all takes no address: name each protocol with its own, as in runexp=127.0.0.1:5433");
  if (known === undefined) {
    throw badInput(`there is no protocol ${name}: ${LISTENER_NAMES.join(", ")} or all`);
  }
  return [{ name: known, ...(address === undefined ? defaultAddress(known) : parseAddress(known, address)) }];
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
    throw badInput(`--protocol ${name}=${text}: expected ADDRESS, PORT or ADDRESS:PORT`);
  }
  if (ports !== undefined && ports.length !== wanted) {
    throw badInput(`--protocol ${name}=${text}: this protocol has ${wanted} ports, not ${ports.length}`);
  }
  return { host, ports: ports ?? DEFAULT_PORTS[name] };
}

function splitOnce(text: string, by: string): [string, string | undefined] {
  const at = text.indexOf(by);
  return at < 0 ? [text, undefined] : [text.slice(0, at), text.slice(at + by.length)];
}

/** These listeners have no authentication, so they open on loopback only, unless the operator insists. */
export function checkListeners(listeners: readonly ListenerRequest[], insecure: boolean): void {
  for (const { name, host } of listeners) {
    if (insecure || isLoopback(host)) continue;
    throw badInput(
      `the ${name} listener has no authentication, and other machines can reach ${host}: --insecure opens it anyway`,
    );
  }
  const twice = listeners.find(({ name }, at) => listeners.findIndex((other) => other.name === name) !== at);
  if (twice !== undefined) throw badInput(`protocol ${twice.name} is given twice`);
}

// The host name under which other machines reach this one, if none is given.

/**
 * The host name, unless it resolves to this machine only, as a line in /etc/hosts of many systems makes it. Then an
 * address under which others can reach this machine, if it has one.
 */
export async function advertisedHost(): Promise<string> {
  const name = hostname();
  const found = await lookup(name).catch(() => undefined);
  if (found !== undefined && !isLoopback(found.address)) return name;
  const outward = Object.values(networkInterfaces())
    .flatMap((addresses) => addresses ?? [])
    .filter(({ internal, address }) => !internal && !address.startsWith("fe80"))
    .sort((a, b) => Number(a.family === "IPv6") - Number(b.family === "IPv6"));
  return outward[0]?.address ?? name;
}

// A listener on a plain TCP port: it accepts peers and closes. The protocol's session does the rest.

/** A connected peer, as the listener sees it. */
export interface TcpPeer {
  /** The broker or the listener closes: say goodbye as the protocol requires, then end the socket. */
  shutdown(): void;
}

/** How long to wait for peers to close. */
const CLOSE_TIMEOUT_MS = 200;

export async function openTcpListener(
  name: ListenerName,
  { log, guard: connections }: Pick<ListenerContext, "log" | "guard">,
  { host, ports: [port = 0] }: ListenerAddress,
  /** `greeted`: the peer has identified itself. */
  accept: (socket: Socket, address: string, greeted: () => void) => TcpPeer,
): Promise<Listener> {
  const guard = connections.of(name);
  const peers = new Map<Socket, TcpPeer>();
  const server = createServer({ noDelay: true, keepAlive: true, keepAliveInitialDelay: 10_000 }, (socket) => {
    const address = socket.remoteAddress ?? "unknown";
    // A broken connection is not an error: the session notices its end.
    socket.on("error", () => socket.destroy());
    if (!guard.admit(socket)) return;
    socket.once("close", () => peers.delete(socket));
    peers.set(
      socket,
      accept(socket, address, () => guard.authenticated(socket)),
    );
  });
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen(port, host, () => {
      server.off("error", reject);
      server.on("error", (error) => log.error({ listener: name, error: error.message }, "the listener failed"));
      resolve();
    });
  }).catch((cause: unknown) => {
    const why = errnoOf(cause) === "EADDRINUSE" ? "something else listens there" : String(cause);
    throw badInput(`cannot open the ${name} listener on ${host}:${port}: ${why}`, cause);
  });
  const address = server.address();
  const open = typeof address === "object" && address !== null ? address.port : port;
  return {
    urls: [`tcp://${inUrl(host)}:${open}`],
    close: () =>
      new Promise((resolve) => {
        const deadline = setTimeout(() => {
          for (const socket of peers.keys()) socket.destroy();
        }, CLOSE_TIMEOUT_MS);
        server.close(() => {
          clearTimeout(deadline);
          resolve();
        });
        for (const peer of peers.values()) peer.shutdown();
      }),
  };
}
