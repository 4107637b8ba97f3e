/** The profile of a Scale0 worker before its first CONNECT or READY. */
import { randomUUID } from "node:crypto";
import type { WorkerProfile } from "../../../dispatch/index.js";
import { SessionId, WorkerId } from "../../../model/ids.js";
import type { Scale0Context } from "./context.js";
import type { PeerSession } from "./peer-session.js";

export function profileOf({ pool }: Scale0Context, { name, peer }: PeerSession): WorkerProfile {
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
    canPrefetch: false,
    taskKinds: ["call"],
    address: peer.address,
  };
}
