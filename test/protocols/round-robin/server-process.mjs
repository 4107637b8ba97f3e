/** A round-robin server in a process of its own. Arguments: its data directory, and the limits of heartbeats as JSON. */
import { PeerErrors } from "../../../dist/base/log.js";
import { TracedConnections } from "../../../dist/base/traced-connections.js";
import { openRoundRobinListener } from "../../../dist/protocols/round-robin/broker/listener.js";
import { startBroker } from "../../../dist/server.js";

const [dir, heartbeatLimits] = process.argv.slice(2);
const log = { info: () => {}, warn: () => {}, error: () => {} };
const { core, guard } = await startBroker({ dir, port: 0, log });
const context = {
  core,
  guard,
  log,
  peerErrors: new PeerErrors(log),
  connections: new TracedConnections(),
  settings: {},
};
const options = { joinDelayMs: 0, heartbeatLimits: JSON.parse(heartbeatLimits) };
const listener = await openRoundRobinListener(context, { host: "127.0.0.1", ports: [0] }, options);
console.log(`listening on ${listener.urls[0]};`);
