/** A network that breaks at a moment of the conversation: when a certain text goes to the server, or when the answer to it comes back. */
import { type AddressInfo, connect, createServer, type Socket } from "node:net";

export type Moment = "before it arrives" | "before it is answered";

export interface CuttingProxy {
  readonly port: number;
  /** How often it has cut. */
  readonly cuts: number;
  /** The next connection on which this text is sent is cut. */
  cutAt(text: string, moment: Moment): void;
  /** Nothing goes through, and nothing is closed. */
  swallow(on: boolean): void;
  close(): Promise<void>;
}

export async function cuttingProxy(to: number): Promise<CuttingProxy> {
  const sockets = new Set<Socket>();
  let wanted: { readonly text: string; readonly moment: Moment } | undefined;
  let swallowing = false;
  let cuts = 0;

  const cut = (near: Socket, far: Socket): void => {
    cuts++;
    wanted = undefined;
    near.destroy();
    far.destroy();
  };

  const server = createServer((near) => {
    const far = connect(to, "127.0.0.1");
    let answerIsCut = false;
    for (const socket of [near, far]) {
      sockets.add(socket);
      socket.on("error", () => {});
      socket.on("close", () => {
        sockets.delete(socket);
        near.destroy();
        far.destroy();
      });
    }
    near.on("data", (bytes) => {
      if (swallowing) return;
      const hit = wanted !== undefined && bytes.includes(wanted.text);
      if (hit && wanted?.moment === "before it arrives") return cut(near, far);
      answerIsCut ||= hit;
      far.write(bytes);
    });
    far.on("data", (bytes) => {
      if (swallowing) return;
      if (answerIsCut) cut(near, far);
      else near.write(bytes);
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    port: (server.address() as AddressInfo).port,
    get cuts() {
      return cuts;
    },
    cutAt: (text, moment) => {
      wanted = { text, moment };
    },
    swallow: (on) => {
      swallowing = on;
    },
    close: async () => {
      for (const socket of sockets) socket.destroy();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}
