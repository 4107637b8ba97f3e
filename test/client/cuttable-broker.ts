/** A broker in this process whose links can be watched and cut, and which may be stopped and started again. */

import type { InProcessBroker } from "../../src/protocols/laboro/broker-address.js";
import { Connection } from "../../src/protocols/laboro/connection.js";
import { type MemorySocket, memoryPair } from "../../src/protocols/laboro/memory-transport.js";
import type { FromClient, LinkMessage, ToClient } from "../../src/protocols/laboro/messages.js";

export class CuttableBroker implements InProcessBroker {
  readonly token: string;
  /** The broker that links are opened to; undefined while there is none. */
  broker: InProcessBroker | undefined;
  /** Sees each message to the client before it is passed on. Returns false to cut the link instead. */
  pass: (message: ToClient) => boolean = () => true;
  /** The same, after the message was passed on. */
  passed: (message: ToClient) => boolean = () => true;
  readonly fromClient: LinkMessage[] = [];
  #cut: (() => void)[] = [];

  constructor(broker: InProcessBroker) {
    this.broker = broker;
    this.token = broker.token;
  }

  openLink(token: string): object {
    if (this.broker === undefined) throw new Error("nobody listens");
    const toBroker = this.broker.openLink(token) as MemorySocket;
    const [near, far] = memoryPair();
    const cut = (): void => {
      near.terminate();
      toBroker.terminate();
      client.close();
      broker.close();
    };
    const broker: Connection<ToClient, FromClient> = new Connection(
      toBroker,
      { from: "brokerToClient" },
      {
        onMessages: (batch: readonly ToClient[]) => {
          for (const message of batch) {
            if (!this.pass(message)) return cut();
            client.send(message);
            if (!this.passed(message)) return void setImmediate(cut);
          }
        },
        onClose: ({ code, text }) => client.close(code, text),
      },
    );
    const client: Connection<FromClient, ToClient> = new Connection(
      near,
      { from: "client" },
      {
        onMessages: (batch: readonly FromClient[]) => {
          for (const message of batch) {
            this.fromClient.push(message);
            broker.send(message);
          }
        },
        onClose: ({ code, text }) => broker.close(code, text),
      },
    );
    this.#cut.push(cut);
    return far;
  }

  /** Cuts every link, without a goodbye. */
  cut(): void {
    for (const cut of this.#cut.splice(0)) cut();
  }
}
