import { closeSync, constants, openSync, readSync } from "node:fs";
import { type OnReadOpts, Socket, type SocketConstructorOpts } from "node:net";
import { errnoOf } from "../../base/errors.js";
import type { OutputStream } from "../../model/outcome.js";
import type { ShellPipes } from "./script.js";

/**
 * The agent's end of one output stream: a named pipe that each task opens again, so that a flag that one task sets on
 * it (O_NONBLOCK, for example) does not affect the next. Only the task has a write end. So one read at its end is
 * enough: 0 bytes means that no process has it open ("clear"), EAGAIN that a leftover process does ("held").
 *
 * A short task costs two such reads and nothing else. The pipe of a longer one is followed: a second descriptor in the
 * event loop delivers bytes as they arrive, and is closed when the last writer is gone.
 */

const READ = constants.O_RDONLY | constants.O_NONBLOCK;
/** Shared by all pipes: it is filled and emptied within one call. */
const shared = Buffer.allocUnsafeSlow(65_536);
/** The most that a pipe holds for an ordinary user (fs.pipe-max-size): a bound for leftovers that write on and on. */
const MAX_IN_PIPE = 1_048_576;

type PipeState = "clear" | "held";

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

  /** Delivers the current content of the pipe. */
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

  /** Delivers bytes as they arrive. `onClear` is called when the last writer leaves, not if there is none now. */
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

/** Reads a named pipe in the event loop. Closes when its last writer is gone, if it had a writer since now. */
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

/** For its first milliseconds, output stays in the pipes: most commands end before following them pays off. */
const FOLLOW_AFTER_MS = 10;

/** Both output streams of the tasks of one shell. */
export class OutputPipes {
  private readonly pipes: readonly OutputPipe[];
  private timer: NodeJS.Timeout | undefined;
  private paused = false;

  constructor(paths: ShellPipes, deliver: (stream: OutputStream, bytes: Buffer) => void) {
    const stdout = new OutputPipe(paths.stdout, (bytes) => deliver("stdout", bytes));
    try {
      this.pipes = [stdout, new OutputPipe(paths.stderr, (bytes) => deliver("stderr", bytes))];
    } catch (cause) {
      stdout.close();
      throw cause;
    }
  }

  /** Delivers the current content of the pipes. "held" if a process still has one open for writing. */
  drain(): PipeState {
    const states = this.pipes.map((pipe) => pipe.drain());
    return states.includes("held") ? "held" : "clear";
  }

  /** As `drain`, but returns the state of standard output alone. */
  drainStdout(): PipeState | undefined {
    const [stdout] = this.pipes.map((pipe) => pipe.drain());
    return stdout;
  }

  /** A task begins: after a few milliseconds its output is delivered as it comes. */
  begin(): void {
    this.paused = false;
    this.timer = setTimeout(() => this.follow(() => {}), FOLLOW_AFTER_MS);
  }

  /** Delivers as bytes come; `onClear` is called when a pipe has no writer any more. */
  follow(onClear: () => void): void {
    clearTimeout(this.timer);
    try {
      for (const pipe of this.pipes) pipe.follow(onClear);
      if (this.paused) this.pause();
    } catch (cause) {
      if (!/^E[MN]FILE$/.test(errnoOf(cause) ?? "")) throw cause;
      // Out of descriptors: poll the pipes until there are some.
      this.timer = setTimeout(() => this.follow(onClear), FOLLOW_AFTER_MS);
      if (!this.paused && this.drain() === "clear") onClear();
    }
  }

  /** Reads nothing until `resume`, other than by `drain`. */
  pause(): void {
    this.paused = true;
    for (const pipe of this.pipes) pipe.pause();
  }

  resume(): void {
    this.paused = false;
    for (const pipe of this.pipes) pipe.resume();
  }

  /** Stops following until the next `begin` or `follow`. */
  unfollow(): void {
    clearTimeout(this.timer);
    for (const pipe of this.pipes) pipe.unfollow();
  }

  close(): void {
    clearTimeout(this.timer);
    for (const pipe of this.pipes) pipe.close();
  }
}
