/** Machines under test, with everything that they say and hear noted down. */

import { type ServerCallbacks, ServerStateMachine } from "../../../src/protocols/runexp/broker/server-state-machine.js";
import { VARIABLE_MESSAGES } from "../../../src/protocols/runexp/messages.js";
import { type ClientCallbacks, ClientStateMachine } from "../../../src/protocols/runexp/runner/client-state-machine.js";

export interface Notes {
  readonly written: Buffer[];
  readonly news: string[];
  quietWanted: boolean;
}

const newNotes = (): Notes => ({ written: [], news: [], quietWanted: false });

/** `over` replaces what would only be noted. */
export function server(group: string, over: Partial<ServerCallbacks> = {}): { side: ServerStateMachine; notes: Notes } {
  const notes = newNotes();
  const side = new ServerStateMachine(group, {
    write: (bytes) => void notes.written.push(Buffer.from(bytes)),
    received: () => {},
    sent: () => {},
    joined: (host) => void notes.news.push(`joined ${host}`),
    jobRequested: () => void notes.news.push("asked"),
    scriptSent: () => void notes.news.push("handed"),
    resultAnnounced: ({ name, status, size }) => void notes.news.push(`result ${name} ${status} ${size}`),
    output: (bytes) => void notes.news.push(`output ${bytes.length}`),
    outputEnded: () => void notes.news.push("ended"),
    runnerLeft: () => void notes.news.push("left"),
    protocolError: (reason) => void notes.news.push(`wrong: ${reason}`),
    startQuietTimer: () => {
      notes.quietWanted = true;
    },
    ...over,
  });
  return { side, notes };
}

export function client(group: string, over: Partial<ClientCallbacks> = {}): { side: ClientStateMachine; notes: Notes } {
  const notes = newNotes();
  const ports: ClientCallbacks = {
    write: (bytes, alone) => {
      notes.written.push(Buffer.from(bytes));
      if (alone) notes.news.push("alone");
    },
    received: () => {},
    sent: () => {},
    joined: () => void notes.news.push("joined"),
    job: ({ name, kind, content }) => void notes.news.push(`job ${name} ${kind} ${content.length}`),
    noJob: (answer) => void notes.news.push(answer),
    outputWanted: () => void notes.news.push("output wanted"),
    delivered: () => void notes.news.push("delivered"),
    refused: (reason) => void notes.news.push(`refused: ${reason}`),
    protocolError: (reason) => void notes.news.push(`wrong: ${reason}`),
    startQuietTimer: () => {
      notes.quietWanted = true;
    },
    ...over,
  };
  const side = new ClientStateMachine(group, ports);
  return { side, notes };
}

/** How the bytes of one send arrive: in one piece, byte by byte, or cut at a place. */
export type Cut = (bytes: Buffer) => readonly Buffer[];

export const whole: Cut = (bytes) => [bytes];
export const bytewise: Cut = (bytes) => Array.from(bytes, (byte) => Buffer.from([byte]));
/** In two, unless the first part would be a whole message by itself: that cannot be told from one. */
export const cutAt =
  (place: (length: number) => number): Cut =>
  (bytes) => {
    const at = Math.max(0, Math.min(bytes.length, place(bytes.length)));
    const first = bytes.toString("latin1", 0, at);
    const undecidable = Object.values(VARIABLE_MESSAGES).some(({ pattern }) => pattern.test(first));
    return undecidable ? [bytes] : [bytes.subarray(0, at), bytes.subarray(at)].filter((piece) => piece.length > 0);
  };

/** Gives a machine what one send brings, and then some quiet, as a clock would. */
export function feed(
  side: { push(bytes: Uint8Array): void; quietElapsed(): void },
  notes: Notes,
  bytes: Buffer,
  cut: Cut,
): void {
  for (const piece of cut(bytes)) side.push(piece);
  if (!notes.quietWanted) return;
  notes.quietWanted = false;
  side.quietElapsed();
}
