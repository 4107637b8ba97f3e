/** The routes of the operations that the dashboard uses. A test compares them with the broker's table. */
import type { OperationName } from "../../src/broker/operations/index.js";

export const API_ROUTES = {
  permissions: ["GET", "/permissions"],
  overview: ["GET", "/overview"],
  history: ["GET", "/history"],
  jobs: ["GET", "/jobs"],
  job: ["GET", "/jobs/{job}"],
  taskMap: ["GET", "/jobs/{job}/map"],
  tasks: ["GET", "/jobs/{job}/tasks"],
  running: ["GET", "/jobs/{job}/running"],
  task: ["GET", "/jobs/{job}/tasks/{index}"],
  explain: ["GET", "/jobs/{job}/tasks/{index}/explain"],
  output: ["GET", "/jobs/{job}/tasks/{index}/output"],
  entries: ["GET", "/jobs/{job}/entries"],
  hold: ["POST", "/jobs/{job}/hold"],
  release: ["POST", "/jobs/{job}/release"],
  cancel: ["POST", "/jobs/{job}/cancel"],
  rerun: ["POST", "/jobs/{job}/rerun"],
  workerPage: ["GET", "/workers/page"],
  drain: ["POST", "/workers/{worker}/drain"],
  stop: ["POST", "/workers/{worker}/stop"],
  forgive: ["POST", "/workers/{name}/forgive"],
  services: ["GET", "/services"],
  brokers: ["GET", "/brokers"],
  config: ["GET", "/config"],
  configHistory: ["GET", "/config/history"],
  configSet: ["POST", "/config"],
  connections: ["GET", "/connections"],
  connection: ["GET", "/connections/{id}"],
} as const satisfies Partial<Readonly<Record<OperationName, readonly ["GET" | "POST", string]>>>;

export type ApiOperation = keyof typeof API_ROUTES;
