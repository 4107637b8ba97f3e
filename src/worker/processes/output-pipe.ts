/**
 * The agent's end of one output stream: a named pipe that each task opens again, so that a flag which one task sets on it
 * (O_NONBLOCK, for example) does not affect the next. Only the task has a write end. Hence one read at its end is enough:
 * 0 bytes means that no process holds it any more ("clear"), EAGAIN that a process left behind does ("held").
 *
 * A short task costs two such reads and nothing else. The pipe of a longer one is followed: a second descriptor in the event
 * loop delivers bytes as they come and is closed when the last writer is gone.
 */

import { closeSync, constants, openSync, readSync } from "node:fs";
import { type OnReadOpts, Socket, type SocketConstructorOpts } from "node:net";
import { errnoOf } from "../../base/errors.js";

const READ = constants.O_RDONLY | constants.O_NONBLOCK;
/** Shared by all pipes: it is filled and emptied within one call. */
const shared = Buffer.allocUnsafeSlow(65_536);
/** A pipe holds at most this much for an ordinary user (fs.pipe-max-size); a bound against a leftover that never stops writing. */
const MAX_IN_PIPE = 1_048_576;

export type PipeState = "clear" | "held";

export class OutputPipe {
  private readonly path: string;
  private readonly deliver: (bytes: Buffer) => void;
  private readonly fd: number;
  private follower: Socket | undefined;

  constructor(path: string, deliver: (bytes: Buffer) => void) {
    this.path = path;
    this.deliver = deliver;
    this.fd = openSync(path, READ);
  }

  /** Delivers what the pipe holds now. */
  drain(): PipeState {
    for (let total = 0; total < MAX_IN_PIPE; ) {
      let count: number;
      try {
        count = readSync(this.fd, shared);
      } catch (cause) {
        if (errnoOf(cause) === "EAGAIN") return "held";
        throw cause;
      }
      if (count === 0) return "clear";
      total += count;
      this.deliver(Buffer.from(shared.subarray(0, count)));
    }
    return "held";
  }

  /** Delivers bytes as they come. `onClear` is called when the last writer is gone, not where there is none already. */
  follow(onClear?: () => void): void {
    this.unfollow();
    const follower = readNamedPipe(this.path, this.deliver);
    this.follower = follower;
    if (onClear !== undefined) {
      follower.once("close", () => {
        if (this.follower === follower) onClear();
      });
    }
  }

  pause(): void {
    this.follower?.pause();
  }

  resume(): void {
    this.follower?.resume();
  }

  unfollow(): void {
    const follower = this.follower;
    this.follower = undefined;
    follower?.destroy();
  }

  close(): void {
    this.unfollow();
    closeSync(this.fd);
  }
}

/** Reads a named pipe in the event loop; closes by itself when its last writer is gone, but only if it has had one since now. */
function readNamedPipe(path: string, deliver: (bytes: Buffer) => void): Socket {
  const options: SocketConstructorOpts & { readonly onread: OnReadOpts } = {
    fd: openSync(path, READ),
    readable: true,
    writable: false,
    // Straight from the read to `deliver`: bytes waiting in a stream's buffer would be overtaken by drain().
    onread: {
      buffer: shared,
      callback: (count) => {
        deliver(Buffer.from(shared.subarray(0, count)));
        return true;
      },
    },
  };
  const socket = new Socket(options);
  // A failed read closes the socket too, and "close" is what its owner waits for.
  socket.on("error", () => {});
  return socket;
}
