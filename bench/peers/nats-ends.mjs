/** Both ends of NATS with nats.js. `nats-ends.mjs PORT` alone is the echoing end. */
import { fileURLToPath } from "node:url";
import { connect } from "@nats-io/transport-node";

const SUBJECT = "echo";

/** `quick` leaves out the stack trace that nats.js takes at every request. */
export async function openClient(port, quick, body) {
  const connection = await connect({ servers: `127.0.0.1:${port}`, noAsyncTraces: quick });
  return async () => (await connection.request(SUBJECT, body, { timeout: 30_000 })).data;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const connection = await connect({ servers: `127.0.0.1:${process.argv[2]}` });
  connection.subscribe(SUBJECT, {
    queue: "workers",
    callback: (error, message) => {
      if (error) throw error;
      message.respond(message.data);
    },
  });
  await connection.flush();
  console.log("ready");
  process.on("SIGTERM", () => process.exit(0));
}
