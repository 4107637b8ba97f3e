/** beanstalkd over its text protocol: 64 connections that reserve and delete, one that puts, pipelined. */
import { connect } from "node:net";

const CONCURRENCY = 64;
const BODY = "x".repeat(16);
const PUT = `put 0 0 60 ${BODY.length}\r\n${BODY}\r\n`;

/** Replies in order; a job's body follows its RESERVED line. */
async function dial(port) {
  const socket = connect(Number(port), "127.0.0.1");
  await new Promise((resolve, reject) => socket.once("connect", resolve).once("error", reject));
  socket.setNoDelay(true);
  const waiting = [];
  let text = "";
  socket.on("data", (bytes) => {
    text += bytes;
    for (;;) {
      const end = text.indexOf("\r\n");
      if (end < 0) return;
      const line = text.slice(0, end);
      const body = line.startsWith("RESERVED") ? Number(line.split(" ")[2]) + 2 : 0;
      if (text.length < end + 2 + body) return;
      text = text.slice(end + 2 + body);
      waiting.shift()(line);
    }
  });
  return {
    ask: (command) =>
      new Promise((resolve) => {
        waiting.push(resolve);
        socket.write(command);
      }),
    close: () => socket.destroy(),
  };
}

export async function open(port) {
  const putter = await dial(port);
  return {
    add: async (count) => {
      for (let from = 0; from < count; from += 1_000) {
        await Promise.all(Array.from({ length: Math.min(1_000, count - from) }, () => putter.ask(PUT)));
      }
    },
    addOne: () => putter.ask(PUT),
    work: async (done) => {
      const links = await Promise.all(Array.from({ length: CONCURRENCY }, () => dial(port)));
      let stopped = false;
      for (const link of links) {
        (async () => {
          while (!stopped) {
            const [, id] = (await link.ask("reserve\r\n")).split(" ");
            await link.ask(`delete ${id}\r\n`);
            done();
          }
        })();
      }
      return async () => {
        stopped = true;
        for (const link of links) link.close();
      };
    },
  };
}
