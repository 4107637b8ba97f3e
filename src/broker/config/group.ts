/** The brokers that share a store, as sessions see them that send a peer from one broker to another. */
export interface GroupBroker {
  readonly identity: string;
  /** By name; a listener with several ports has one entry for each, in the order of its ports. */
  readonly listeners: readonly { readonly name: string; readonly url: string }[];
}

export interface BrokerGroup {
  /** The identity of this broker. */
  readonly identity: string;
  /** Its name, for people. */
  readonly name?: string | undefined;
  /** The brokers that are alive and accept work, with this one unless it is being drained. */
  brokers(): readonly GroupBroker[];
  /** Fallbacks, with the listeners that they open when no other broker is left. */
  standbys?(): readonly GroupBroker[];
  /** The URLs of brokers for laboro's own workers, the best first. */
  urls?(): readonly string[];
  /** Calls `listener` when the brokers have changed. Returns the function that removes it. */
  onChanged?(listener: () => void): () => void;
}
