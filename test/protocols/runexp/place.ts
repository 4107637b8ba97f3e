/** A broker with the manager's listener open, in this process. */
import { ConnectionGuard } from "../../../src/base/connection-guard.js";
import { PeerErrors } from "../../../src/base/log.js";
import { TracedConnections } from "../../../src/base/traced-connections.js";
import type { Listener } from "../../../src/broker/listeners/listener.js";
import { type ManagerOptions, openManager } from "../../../src/protocols/runexp/broker/listener.js";
import { checkInvariants } from "../../dispatch/invariants.js";
import { atEnd } from "../../support/at-end.js";
import { openTestBroker, type TestBroker } from "../../support/test-broker.js";
import { LiteralRunner } from "./peers.js";

export interface ManagerPlace extends TestBroker {
  readonly listener: Listener;
  readonly port: number;
  /** Complaints about peers, by their code. */
  readonly complaints: string[];
  readonly conversations: TracedConnections;
  join(host: string): Promise<LiteralRunner>;
}

interface PlaceOptions extends ManagerOptions {
  readonly broker?: Parameters<typeof openTestBroker>[0];
  readonly pool?: string;
  readonly greetingTimeoutMs?: number;
}

export async function openPlace(options: PlaceOptions = {}): Promise<ManagerPlace> {
  const setup = await openTestBroker(options.broker);
  const complaints: string[] = [];
  const log = {
    info: () => {},
    warn: (fields: object, text: string) => {
      complaints.push(`${"code" in fields ? String(fields.code) : ""} ${text}`);
    },
    error: (_fields: object, text: string) => void complaints.push(text),
  };
  const { core } = setup.broker;
  const conversations = new TracedConnections();
  const settings = options.pool === undefined ? {} : { pool: options.pool };
  const peerErrors = new PeerErrors(log);
  const { greetingTimeoutMs } = options;
  const guard = new ConnectionGuard(greetingTimeoutMs === undefined ? {} : { greetingTimeoutMs }, (...refusal) =>
    peerErrors.report(...refusal),
  );
  const context = { core, guard, log, peerErrors, connections: conversations, settings };
  const listener = await openManager(context, { host: "127.0.0.1", ports: [0] }, options);
  atEnd(() => listener.close());
  // The heart is sound, whatever the runners did to it.
  atEnd(() => checkInvariants(core.state));
  const port = Number(new URL(listener.urls[0] ?? "").port);
  const join = async (host: string): Promise<LiteralRunner> => {
    const runner = await LiteralRunner.join(port, host);
    atEnd(() => runner.cut());
    return runner;
  };
  return { ...setup, listener, port, complaints, conversations, join };
}
