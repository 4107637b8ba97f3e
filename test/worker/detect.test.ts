import { mkdirSync, mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { describe, expect, it } from "vitest";
import { Capacity } from "../../src/worker/capacity.js";
import { detectResources } from "../../src/worker/machine.js";
import { openTestBroker } from "../support/test-broker.js";
import { until } from "../support/wait.js";

/** A machine with these files. */
function machine(files: Readonly<Record<string, string>>): string {
  const root = mkdtempSync(join(tmpdir(), "laboro-machine-"));
  for (const [name, text] of Object.entries(files)) {
    mkdirSync(dirname(join(root, name)), { recursive: true });
    writeFileSync(join(root, name), text);
  }
  return root;
}

const NVIDIA = { "proc/driver/nvidia/gpus/0000:01:00.0/information": "", "proc/driver/nvidia/gpus/0000:02:00.0/x": "" };
const AMD = {
  "sys/class/kfd/kfd/topology/nodes/0/properties": "cpu_cores_count 64\nsimd_count 0\n",
  "sys/class/kfd/kfd/topology/nodes/1/properties": "cpu_cores_count 0\nsimd_count 416\n",
};
const MEMORY = { "proc/meminfo": "MemTotal:        2097152 kB\nMemFree: 5 kB\n" };

describe("what a machine has", () => {
  it("is counted from files of the system", () => {
    const found = (files: Readonly<Record<string, string>>, env = {}) => detectResources(env, machine(files));
    expect(found({})).toEqual({ resources: {}, gpuVariable: "CUDA_VISIBLE_DEVICES" });
    expect(found({ ...NVIDIA, ...MEMORY }).resources).toEqual({ gpu: 2, mem: 2048 });
    expect(found({ "dev/nvidia0": "", "dev/nvidia1": "", "dev/nvidiactl": "" }).resources).toEqual({ gpu: 2 });
    expect(found(AMD)).toEqual({ resources: { gpu: 1 }, gpuVariable: "ROCR_VISIBLE_DEVICES" });
  });

  it("is what this process may use of it", () => {
    const gpus = (list: string) => detectResources({ CUDA_VISIBLE_DEVICES: list }, machine(NVIDIA)).resources.gpu;
    expect([gpus("1"), gpus("0,1"), gpus("0,1,2"), gpus(""), gpus("-1"), gpus("0,-1,1")]).toEqual([
      1,
      2,
      2,
      undefined,
      undefined,
      1,
    ]);
    const v2 = { ...MEMORY, "proc/self/cgroup": "0::/jobs/7\n", "sys/fs/cgroup/jobs/7/memory.max": "1073741824\n" };
    expect(detectResources({}, machine(v2)).resources).toEqual({ mem: 1024 });
    const v1 = { ...MEMORY, "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712" };
    expect(detectResources({}, machine(v1)).resources).toEqual({ mem: 2048 });
  });

  it("is offered by a worker, and taken as a whole by a task that needs all of it", async () => {
    const { client, worker } = await openTestBroker();
    const detectFrom = machine({ ...NVIDIA, ...MEMORY });
    const one = worker({ name: "one", slots: 4, detect: true, detectFrom, resources: { mem: 100 } });
    await until("it has joined", () => one.joined);
    expect(await client.workers()).toMatchObject([{ total: { slots: 4, gpu: 2, mem: 100 } }]);
    const recipe = { kind: "command", argv: ["sh", "-c", "echo $CUDA_VISIBLE_DEVICES $LABORO_RESOURCE_GPU"] } as const;
    const whole = await client.submit({ recipe, count: 2, needs: { gpu: "all" } });
    expect(await whole.wait()).toBe("succeeded");
    expect(await whole.text(1)).toBe("0,1 0,1\n");
    expect((await whole.info()).needs).toEqual({ slots: 1, gpu: "all" });
    const none = await client.submit({ recipe, needs: { licence: "all" } });
    expect(await none.explain(0)).toContain("it needs all licence of a worker, and no worker has any");
    await expect(client.submit({ recipe, needs: { slots: "all" } })).rejects.toThrow("needs.slots: expected a number");
  });

  it("is hidden from tasks that do not ask for it only where it was named", () => {
    const total = { slots: 1, gpu: 2 };
    expect(new Capacity(total, {}, { hides: false }).hiddenDevicesEnv).toEqual({});
    expect(new Capacity(total).hiddenDevicesEnv).toEqual({ CUDA_VISIBLE_DEVICES: "" });
    const amd = new Capacity(total, { ROCR_VISIBLE_DEVICES: "4,5" }, { gpuVariable: "ROCR_VISIBLE_DEVICES" });
    expect(amd.acquire({ slots: 1, gpu: 1 }).env).toEqual({ LABORO_RESOURCE_GPU: "4", ROCR_VISIBLE_DEVICES: "4" });
  });
});
