// A worker as anybody might write it, in a process of its own: one DEALER, an answer after a few milliseconds, PING when it is free.
import { Dealer } from "zeromq";

const [, , url, identity, delay] = process.argv;
const socket = new Dealer({ routingId: identity, linger: 0 });
socket.connect(url);
let version;
let last = Promise.resolve();
const say = (command, parameters, ...body) => {
  last = last.then(() => socket.send([command, JSON.stringify(parameters), ...body]));
};
const ping = () => say("PING", { heartbeat_interval: 2000, time: Date.now(), config_version: version });
const connect = () => say("CONNECT", { config_type: "ZFL", services: ["echo"] });
connect();
setInterval(() => {
  if (version !== undefined) ping();
}, 500);
for await (const [command, parameters, ...body] of socket) {
  const said = JSON.parse(parameters.toString());
  if (command.toString() === "CONFIG") {
    version = said.config_version;
    ping();
  } else if (command.toString() === "FORCENEGOTIATE") {
    connect();
  } else if (command.toString() === "WORKREQUEST") {
    setTimeout(() => {
      say("WORKREPLY", { work_request_identifier: said.work_request_identifier }, ...body);
      ping();
    }, Number(delay));
  }
}
