/** Names of machines as `--ssh`, `laboro ssh` and `laboro doctor` read them. */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { parseHosts } from "../../../src/cli/lib/ssh/connection.js";
import { atEnd } from "../../support/at-end.js";

describe("a list of machines", () => {
  it.each([
    ["node1", { label: "node1", destination: "node1" }],
    ["node1/8", { label: "node1", destination: "node1", slots: 8 }],
    ["ada@node1:2222/8", { label: "ada@node1:2222", destination: "ada@node1", port: 2222, slots: 8 }],
    ["node-1.example.org:22", { label: "node-1.example.org:22", destination: "node-1.example.org", port: 22 }],
    ["[fe80::1%eth0]:2222/2", { label: "[fe80::1%eth0]:2222", destination: "fe80::1%eth0", port: 2222, slots: 2 }],
    ["ada@[::1]", { label: "ada@[::1]", destination: "ada@::1" }],
  ])("reads %s", (word, host) => {
    expect(parseHosts([word])).toEqual({ hosts: [host] });
  });

  it("takes several with commas, and this machine as a colon", () => {
    expect(parseHosts([":/2,a,b/3"])).toEqual({
      hosts: [
        { label: "a", destination: "a" },
        { label: "b", destination: "b", slots: 3 },
      ],
      local: { slots: 2 },
    });
    expect(parseHosts([":"])).toEqual({ hosts: [], local: { slots: 0 } });
  });

  it("takes a file with one in each line, without its comments", () => {
    const dir = mkdtempSync(join(tmpdir(), "laboro-hosts-"));
    atEnd(() => rmSync(dir, { recursive: true, force: true }));
    const file = join(dir, "hosts.txt");
    writeFileSync(file, "# the old ones\nnode1/8\n\n  ada@node2:2222  # has a GPU\n:/1\n");
    expect(parseHosts([`@${file},node3`])).toEqual({
      hosts: [
        { label: "node1", destination: "node1", slots: 8 },
        { label: "ada@node2:2222", destination: "ada@node2", port: 2222 },
        { label: "node3", destination: "node3" },
      ],
      local: { slots: 1 },
    });
    writeFileSync(file, "# none\n");
    expect(() => parseHosts([`@${file}`])).toThrow(/names no machine/);
  });

  it.each(["a:0", "a:65536", "a/0", "::1", "a,-b", "a@b@c"])("refuses %s", (word) => {
    expect(() => parseHosts([word])).toThrow(/expected \[USER@\]HOST/);
  });
});
