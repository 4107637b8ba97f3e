/** What a Scale0 worker is to dispatch before it has said anything of itself. */
import { randomUUID } from "node:crypto";
import type { WorkerProfile } from "../../../dispatch/index.js";
import { SessionId, WorkerId } from "../../../model/ids.js";
import type { Parts } from "./parts.js";
import type { Voice } from "./voice.js";

export function profileOf({ pool }: Parts, { name, peer }: Voice): WorkerProfile {
  return {
    id: WorkerId(`scale0:${name}`),
    session: SessionId(randomUUID()),
    name,
    protocol: "scale0",
    pool,
    tags: [],
    services: [],
    total: { slots: 0 },
    reserveRequests: 0,
    resumable: false,
    stocks: false,
    runs: ["call"],
    address: peer.address,
  };
}
