/**
 * The ZeroMQ sockets of laboro. They are plain TypeScript (zmtp-*.ts). Those with CURVE keys use the `zeromq` package
 * (curve.ts), an optional peer dependency that is loaded only then.
 */
import { isCurveKey } from "../../base/curve-key.js";
import { badInput, LaboroError } from "../../base/errors.js";
import type {
  BindOptions,
  ConnectOptions,
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
  const { curve } = options;
  if (curve === undefined) return openZmtpRouter(options, listener);
  const { openCurveRouter } = await loadCurve(curve.publicKey, curve.secretKey, ...curve.known);
  return openCurveRouter({ ...options, curve }, listener);
}

export async function openPublisher(options: BindOptions): Promise<Publisher> {
  const { curve } = options;
  if (curve === undefined) return openZmtpPublisher(options);
  const { openCurvePublisher } = await loadCurve(curve.publicKey, curve.secretKey, ...curve.known);
  return openCurvePublisher({ ...options, curve });
}

/** Connects and reconnects by itself: see `opened`. */
export async function openDealer(options: ConnectOptions, listener: DealerListener): Promise<Dealer> {
  const { curve } = options;
  if (curve === undefined) return new ZmtpDealer(options, listener);
  const { openCurveDealer } = await loadCurve(curve.publicKey, curve.secretKey, curve.serverKey);
  return openCurveDealer({ ...options, curve }, listener);
}

async function loadCurve(...keys: readonly string[]) {
  if (!keys.every(isCurveKey)) throw badInput("a CURVE key is 40 characters of Z85, as zmq_curve_keypair makes them");
  return import("./curve.js").catch((cause: unknown) => {
    const why = cause instanceof Error ? cause.message.split("\n")[0] : String(cause);
    const text = `CURVE needs the package zeromq, run npm install zeromq: ${why}`;
    throw new LaboroError("LABORO_PACKAGE_MISSING", text, { cause });
  });
}
