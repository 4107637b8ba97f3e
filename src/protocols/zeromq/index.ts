/**
 * The ZeroMQ sockets of laboro. Sockets are plain TypeScript (zmtp-*.ts); those with CURVE keys are of the `zeromq` package (curve-*.ts),
 * an optional peer dependency that is loaded only then.
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
  Subscriber,
  SubscriberOptions,
} from "./types.js";
import { openZmtpDealer } from "./zmtp-dealer.js";
import { openZmtpPublisher } from "./zmtp-publisher.js";
import { openZmtpRouter } from "./zmtp-router.js";

export type {
  BindOptions,
  ConnectOptions,
  CurveClient,
  CurveServer,
  Dealer,
  DealerListener,
  Limits,
  Peer,
  Publisher,
  Router,
  RouterListener,
  RouterOptions,
  Subscriber,
  SubscriberOptions,
} from "./types.js";
export { DEFAULT_LIMITS, keyOf } from "./types.js";
export { parseTcpUrl } from "./zmtp-dealer.js";

export async function openRouter(options: RouterOptions, listener: RouterListener): Promise<Router> {
  const { curve } = options;
  if (curve === undefined) return openZmtpRouter(options, listener);
  await prepareCurve(curve.publicKey, curve.secretKey, ...curve.known);
  return (await import("./curve-router.js")).openCurveRouter({ ...options, curve }, listener);
}

export async function openPublisher(options: BindOptions): Promise<Publisher> {
  const { curve } = options;
  if (curve === undefined) return openZmtpPublisher(options);
  await prepareCurve(curve.publicKey, curve.secretKey, ...curve.known);
  return (await import("./curve-peers.js")).openCurvePublisher({ ...options, curve });
}

/** It connects by itself, and again whenever it must: `opened` says when. */
export async function openDealer(options: ConnectOptions, listener: DealerListener): Promise<Dealer> {
  const { curve } = options;
  if (curve === undefined) return openZmtpDealer(options, listener);
  await prepareCurve(curve.publicKey, curve.secretKey, curve.serverKey);
  return (await import("./curve-peers.js")).openCurveDealer({ ...options, curve }, listener);
}

export async function openSubscriber(options: SubscriberOptions, listener: DealerListener): Promise<Subscriber> {
  const { curve } = options;
  if (curve === undefined) {
    const initialMessages = options.topics.map((topic) => [
      Buffer.concat([Buffer.from([1]), Buffer.from(topic, "latin1")]),
    ]);
    return openZmtpDealer(options, listener, { socketType: "SUB", accepts: ["PUB", "XPUB"], initialMessages });
  }
  await prepareCurve(curve.publicKey, curve.secretKey, curve.serverKey);
  return (await import("./curve-peers.js")).openCurveSubscriber({ ...options, curve }, listener);
}

async function prepareCurve(...keys: readonly string[]): Promise<void> {
  if (!keys.every(isCurveKey)) {
    throw badInput("a CURVE key is 40 characters of Z85, as zmq_curve_keypair makes them");
  }
  await import("zeromq").catch((cause: unknown) => {
    const why = cause instanceof Error ? cause.message.split("\n")[0] : String(cause);
    const text = `CURVE needs the package zeromq beside laboro, npm install zeromq: ${why}`;
    throw new LaboroError("LABORO_PACKAGE_MISSING", text, { cause });
  });
}
