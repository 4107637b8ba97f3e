import { describe, expect, it, vi } from "vitest";
import { parseRange } from "../../src/broker/api/json.js";
import type { Write } from "../../src/model/store.js";
import { sh, TRUE } from "../support/recipes.js";
import { until } from "../support/wait.js";
import { apiOf, codeOf, openTestBroker } from "./kit.js";

const RAW = { headers: { accept: "application/octet-stream" } };

interface Page {
  readonly pieces: readonly {
    readonly stream: string;
    readonly offset: number;
    readonly bytes: string | { readonly base64: string };
  }[];
  readonly endOffset: number;
  readonly ended: boolean;
  readonly next?: number;
}

describe("a task's output", () => {
  it("is followed while it comes, until the task has ended", async () => {
    const { broker, client, worker, dir } = await openTestBroker();
    const api = apiOf(broker);
    worker();
    const step = (name: string): string => `while ! test -e ${dir}/${name}; do sleep 0.02; done`;
    const job = await client.submit({ recipe: sh(`echo one; ${step("a")}; echo two; ${step("b")}; echo three >&2`) });
    let [from, text] = [0, ""];
    const go = async (): Promise<Page> => {
      const page = (await api(`/jobs/${job.id}/tasks/0/output?from=${from}&waitMs=20000`)).json as Page;
      for (const { bytes } of page.pieces) text += String(bytes);
      from = page.endOffset;
      return page;
    };
    expect(await go()).toMatchObject({ pieces: [{ stream: "stdout", offset: 0, bytes: "one\n" }], ended: false });
    const { writeFileSync } = await import("node:fs");
    const waiting = go();
    writeFileSync(`${dir}/a`, "");
    await waiting;
    expect(text).toBe("one\ntwo\n");
    writeFileSync(`${dir}/b`, "");
    let ended = false;
    while (!ended) ended = (await go()).ended;
    expect(text).toBe("one\ntwo\nthree\n");
  });

  it("is not over while its result is on the way to the disk, small output with it", async () => {
    const { broker, client, worker } = await openTestBroker();
    const { store } = broker.core;
    const commit = store.commit.bind(store);
    let release: (() => void) | undefined;
    vi.spyOn(store, "commit").mockImplementation(async (writes: readonly Write[], now: number) => {
      if (writes.some(({ op }) => op === "settle")) {
        await new Promise<void>((resolve) => {
          release = resolve;
        });
      }
      return commit(writes, now);
    });
    worker();
    const job = await client.submit({ recipe: sh("echo small") });
    await until("the result is on its way", () => release !== undefined);
    const ask = (waitMs: number) => client.ask("output", { job: job.id, index: 0, attempt: 1, waitMs });
    expect(await ask(0)).toMatchObject({ pieces: [], ended: false });
    const waiting = ask(20_000);
    release?.();
    expect(await waiting).toMatchObject({ pieces: [{ bytes: Buffer.from("small\n") }], ended: true });
  });

  it("is waited for no longer than asked", async () => {
    const { broker, client } = await openTestBroker();
    const job = await client.submit({ recipe: TRUE });
    const begun = performance.now();
    const { json } = await apiOf(broker)(`/jobs/${job.id}/tasks/0/output?waitMs=150`);
    expect(json).toEqual({ pieces: [], endOffset: 0, ended: false });
    expect(performance.now() - begun).toBeGreaterThan(140);
  });

  it("is had raw, whole or in ranges, of one stream or both, and bytes are bytes", async () => {
    const { broker, client, worker } = await openTestBroker();
    const api = apiOf(broker);
    worker();
    const job = await client.submit({ recipe: sh("printf 'a\\377b'; printf err >&2; sleep 0.1; printf cdef") });
    await job.wait();
    const path = `/jobs/${job.id}/tasks/0/output`;
    const out = Buffer.from([0x61, 0xff, 0x62, 0x63, 0x64, 0x65, 0x66]);
    const whole = await api(`${path}?stream=stdout`, RAW);
    expect([whole.status, whole.headers["content-length"], whole.headers["laboro-attempt"]]).toEqual([200, "7", "1"]);
    expect(whole.bytes).toEqual(out);
    expect((await api(`${path}?stream=stderr`, RAW)).text).toBe("err");
    expect((await api(path, RAW)).bytes).toHaveLength(10);
    const { json } = await api(`${path}?stream=stdout`);
    expect((json as Page).pieces.map(({ bytes }) => bytes)).toContainEqual({ base64: "Yf9i" });

    const range = async (header: string) => {
      const answer = await api(`${path}?stream=stdout`, { headers: { ...RAW.headers, range: header } });
      return [
        answer.status,
        answer.headers["content-range"],
        answer.status === 416 ? codeOf(answer) : answer.bytes.toString("latin1"),
      ];
    };
    expect(await range("bytes=1-3")).toEqual([206, "bytes 1-3/7", "\xffbc"]);
    expect(await range("bytes=5-")).toEqual([206, "bytes 5-6/7", "ef"]);
    expect(await range("bytes=-2")).toEqual([206, "bytes 5-6/7", "ef"]);
    expect(await range("bytes=0-999")).toEqual([206, "bytes 0-6/7", out.toString("latin1")]);
    expect(await range("bytes=7-")).toEqual([416, "bytes */7", "LABORO_BAD_INPUT"]);
    expect((await range("lines=1-2"))[0]).toBe(200);
  });

  it("of several attempts is kept apart, and the latest is meant", async () => {
    const { broker, client, worker } = await openTestBroker({ settings: { retryBackoffMs: 10 } });
    const api = apiOf(broker);
    worker();
    const job = await client.submit({ recipe: sh('echo "$LABORO_ATTEMPT"; test "$LABORO_ATTEMPT" = 2'), retries: 1 });
    await job.wait();
    expect((await api(`/jobs/${job.id}/tasks/0/output`, RAW)).text).toBe("2\n");
    expect((await api(`/jobs/${job.id}/tasks/0/output?attempt=1`, RAW)).text).toBe("1\n");
  });

  it("of many megabytes is sent without being held in memory, and stops when nobody reads", async () => {
    const { broker, client, worker } = await openTestBroker();
    const api = apiOf(broker);
    worker();
    const job = await client.submit({ recipe: sh("head -c 12000000 /dev/zero") });
    await job.wait();
    const answer = await api(`/jobs/${job.id}/tasks/0/output`, RAW);
    expect(answer.bytes).toHaveLength(12_000_000);
    const cut = await fetch(`${broker.url}/api/v1/jobs/${job.id}/tasks/0/output`, {
      headers: { ...RAW.headers, authorization: `Bearer ${broker.token}` },
    });
    const reader = cut.body?.getReader();
    expect((await reader?.read())?.done).toBe(false);
    await reader?.cancel();
    await until("the broker answers", async () => (await api("/status")).status === 200);
  });
});

describe("a range", () => {
  it("is what the standard says", () => {
    expect(parseRange(undefined, 10)).toBeUndefined();
    expect(parseRange("bytes=-", 10)).toBeUndefined();
    expect(parseRange("bytes=5-2", 10)).toBeUndefined();
    expect(parseRange("bytes=0-0,2-3", 10)).toBeUndefined();
    expect(parseRange("bytes=-0", 10)).toBe("outside");
    expect(parseRange("bytes=0-", 0)).toBe("outside");
    expect(parseRange("bytes=-99", 10)).toEqual({ first: 0, last: 9 });
  });
});
