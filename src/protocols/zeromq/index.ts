/** The ZeroMQ sockets of laboro, in plain TypeScript: zmtp-*.ts. What CURVE needs is loaded only for sockets with keys. */
import { isCurveKey } from "../../base/curve-key.js";
import { badInput } from "../../base/errors.js";
import type { MakeMechanism } from "./mechanism.js";
import type {
  BindOptions,
  ConnectOptions,
  CurveClient,
  CurveServer,
  Dealer,
  DealerListener,
  Publisher,
  Router,
  RouterListener,
  RouterOptions,
} from "./types.js";
import { openZmtpPublisher, openZmtpRouter, ZmtpDealer } from "./zmtp-sockets.js";

export * from "./types.js";
export { parseTcpUrl } from "./zmtp-sockets.js";

export async function openRouter(options: RouterOptions, listener: RouterListener): Promise<Router> {
  return openZmtpRouter({ ...options, mechanism: await serverMechanism(options.curve) }, listener);
}

export async function openPublisher(options: BindOptions): Promise<Publisher> {
  return openZmtpPublisher({ ...options, mechanism: await serverMechanism(options.curve) });
}

/** Connects and reconnects by itself: see `opened`. */
export async function openDealer(options: ConnectOptions, listener: DealerListener): Promise<Dealer> {
  return new ZmtpDealer({ ...options, mechanism: await clientMechanism(options.curve) }, listener);
}

async function serverMechanism(curve: CurveServer | undefined): Promise<MakeMechanism | undefined> {
  if (curve === undefined) return undefined;
  checkKeys(curve.publicKey, curve.secretKey, ...curve.known);
  return (await import("./curve.js")).curveServer(curve);
}

async function clientMechanism(curve: CurveClient | undefined): Promise<MakeMechanism | undefined> {
  if (curve === undefined) return undefined;
  checkKeys(curve.publicKey, curve.secretKey, curve.serverKey);
  return (await import("./curve.js")).curveClient(curve);
}

function checkKeys(...keys: readonly string[]): void {
  if (!keys.every(isCurveKey)) throw badInput("a CURVE key is 40 characters of Z85, as zmq_curve_keypair makes them");
}
