/** Where the broker of a worker or client is: at a URL, or in this process. */
import { badInput } from "../../base/errors.js";

/** What `startBroker` returns, for workers and clients in the same process. */
export interface InProcessBroker {
  /** The token of those who name no other. */
  readonly token: string;
  /** One end of a new link. Throws LABORO_BAD_TOKEN, or LABORO_BROKER_UNREACHABLE once it has stopped. */
  openLink(token: string): object;
}

export type BrokerAddress = string | InProcessBroker;

export const isInProcess = (address: unknown): address is InProcessBroker =>
  typeof address === "object" && address !== null && "openLink" in address;

export interface BrokerOption {
  readonly broker: string | readonly string[] | InProcessBroker;
  readonly token?: string | undefined;
}

/** Reads the options `broker` and `token` of workers and clients. */
export function addressesOf({ broker, token }: BrokerOption): {
  readonly urls: readonly BrokerAddress[];
  readonly token: string;
} {
  if (isInProcess(broker)) return { urls: [broker], token: token ?? broker.token };
  if (token === undefined) throw badInput("token: a broker in another process needs one");
  return { urls: typeof broker === "string" ? [broker] : broker, token };
}
