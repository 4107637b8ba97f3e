/**
 * Link-level workers, all in one process: `crowd.mjs URL TOKEN COUNT SLOTS` opens COUNT links of SLOTS slots each. They offer the service
 * `nothing` and report a task as done when it arrives. What is measured is the cost of queue, store and link. Any message is answered
 * when all of them have joined.
 */
import { randomUUID } from "node:crypto";
import { dial } from "../../dist/protocols/laboro/dial.js";
import { LINK_VERSION } from "../../dist/protocols/laboro/messages.js";

const [url, token, count, slots] = process.argv.slice(2);
let allJoined;
const everyone = new Promise((resolve) => {
  allJoined = resolve;
});
let joined = 0;
process.on("message", () => everyone.then(() => process.send({})));
/** Links that are being opened at a time: this one process would not keep up with more. */
const AT_ONCE = 50;
const links = [];
const openNext = () => {
  if (links.length < Number(count)) links.push(join(`crowd-${links.length}`));
};
process.on("SIGTERM", () => {
  for (const link of links) link.stop();
  process.exit(0);
});

for (let i = 0; i < AT_ONCE; i++) openNext();

function join(name) {
  let seq = 0;
  return dial({
    from: "worker",
    urls: [url],
    token,
    onOpen: (link) =>
      link.send({
        type: "JOIN",
        version: LINK_VERSION,
        secret: randomUUID(),
        session: randomUUID(),
        name,
        total: { slots: Number(slots) },
        tags: [],
        pool: "default",
        services: ["nothing"],
        reserveRequests: 0,
        held: [],
      }),
    onMessages: (batch, link) => {
      const tasks = [];
      for (const message of batch) {
        if (message.type === "WELCOME") {
          link.startHeartbeat(message.heartbeatMs);
          openNext();
          if (++joined === Number(count)) allJoined();
        } else if (message.type === "TASKS") tasks.push(...done(message));
        else if (message.type === "RETRACT") link.send({ type: "RETRACTED", tasks: [] });
      }
      if (tasks.length > 0) link.send({ type: "DONE", seq: ++seq, tasks });
    },
    onDisconnected: (reason) => console.error(`${name}: ${reason.text}`),
    onRefused: (error) => console.error(`${name}: ${error.message}`),
  });
}

function* done({ job, first, last, attempt }) {
  const at = Date.now();
  for (let index = first; index <= last; index++) {
    yield { job, index, attempt, code: 0, started: at, ended: at, outputBytes: 0 };
  }
}
