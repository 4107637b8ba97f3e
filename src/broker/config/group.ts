/** The brokers that share a store, as far as those need to know that send peers from one to another. */
export interface GroupBroker {
  readonly identity: string;
  /** Its doors by name; one with several ports is there as often, in the order of its ports. */
  readonly listeners: readonly { readonly name: string; readonly url: string }[];
}

export interface BrokerGroup {
  /** Which of them this broker is. */
  readonly identity: string;
  /** What people call it. */
  readonly name?: string | undefined;
  /** Those that are alive and take work, this one among them unless it is being drained. */
  brokers(): readonly GroupBroker[];
  /** Where workers of ours find a broker, the best first. */
  urls?(): readonly string[];
  /** Called when they have changed, until the function that it returns is called. */
  onChanged?(tell: () => void): () => void;
}
