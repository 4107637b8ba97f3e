/** Plain TCP between two Node processes, messages of 64 B: what no broker at all costs. `tcp-ends.mjs` alone is the echoing end. */
import { connect, createServer } from "node:net";
import { fileURLToPath } from "node:url";

export async function openClient(port, body) {
  const socket = connect(Number(port), "127.0.0.1");
  await new Promise((resolve, reject) => socket.once("connect", resolve).once("error", reject));
  socket.setNoDelay(true);
  const waiting = [];
  let rest = Buffer.alloc(0);
  let outgoing = [];
  socket.on("data", (bytes) => {
    let data = rest.length === 0 ? bytes : Buffer.concat([rest, bytes]);
    while (data.length >= body.length) {
      waiting.shift()(data.subarray(0, body.length));
      data = data.subarray(body.length);
    }
    rest = data;
  });
  // All that is asked in one turn goes out in one write, as every broker's client does it.
  const flush = () => {
    const pieces = outgoing;
    outgoing = [];
    socket.write(Buffer.concat(pieces));
  };
  return () =>
    new Promise((resolve) => {
      waiting.push(resolve);
      if (outgoing.push(body) === 1) process.nextTick(flush);
    });
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const server = createServer({ noDelay: true }, (socket) =>
    socket.on("data", (bytes) => socket.write(bytes)).on("error", () => {}),
  );
  process.once("message", () => server.listen(0, "127.0.0.1", () => process.send({ port: server.address().port })));
  process.on("SIGTERM", () => process.exit(0));
}
