import { errnoOf } from "../../base/errors.js";
import type { OutputStream } from "../../model/outcome.js";
import { OutputPipe, type PipeState } from "./output-pipe.js";
import type { ShellPipes } from "./script.js";

/** In its first milliseconds the output of a command stays in its pipes: most commands end before following them pays. */
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

  /** Delivers what the pipes hold now. "held" where someone still has one open for writing. */
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
