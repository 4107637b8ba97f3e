/**
 * `laboro/broker`: a broker inside another program.
 *
 * @module laboro/broker
 */
import type { Broker, BrokerOptions } from "../broker/options.js";
import { startBroker as start } from "../server.js";

export { type ErrorCode, LaboroError } from "../base/errors.js";
export type { Log } from "../base/log.js";
export type { Role } from "../broker/access/tokens.js";
export type { ListenerName, ListenerRequest, ListenerSettings, OpenListener } from "../broker/listeners/listener.js";
export type { Broker, BrokerOptions } from "../broker/options.js";
export type { Retention } from "../broker/retention.js";
export type { Settings } from "../dispatch/index.js";

/** Starts a broker in this process. Resolves when its listeners are open. A data directory has one broker at a time. */
export const startBroker: (options: BrokerOptions) => Promise<Broker> = start;
