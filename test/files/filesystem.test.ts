import * as fs from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { networkFilesystem } from "../../src/base/files/filesystem.js";
import { scratch } from "./scratch.js";

const MOUNTS = `22 28 0:20 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
31 22 0:27 / /bin rw,relatime shared:2 - NAME server:/home rw
32 31 0:28 / /bin/local rw - xfs /dev/sdb1 rw
`;
const on = (name: string): string => MOUNTS.replace("NAME", name);

describe("networkFilesystem", () => {
  const realBin = fs.realpathSync("/bin");

  it("knows the filesystems that several machines share by their name in the mount table", () => {
    for (const name of ["nfs", "nfs4", "cifs", "lustre", "gpfs", "beegfs", "ceph", "9p", "afs", "fuse.sshfs"]) {
      expect(networkFilesystem("/bin", { mountinfo: on(name).replaceAll("/bin", realBin) })).toBe(name);
    }
    for (const name of ["ext4", "xfs", "btrfs", "tmpfs", "overlay", "zfs", "fuse.fuse-overlayfs", "fuseblk"]) {
      expect(networkFilesystem("/bin", { mountinfo: on(name).replaceAll("/bin", realBin) })).toBeUndefined();
    }
  });

  it("goes by the innermost mount, and by the last of several at one place", () => {
    const directory = scratch();
    const inner = join(directory, "a b");
    fs.mkdirSync(inner);
    const escaped = inner.replace(" ", "\\040");
    const nfs = `1 0 0:1 / / rw - ext4 a rw\n2 1 0:2 / ${directory} rw - nfs4 b rw\n`;
    expect(networkFilesystem(inner, { mountinfo: nfs })).toBe("nfs4");
    expect(networkFilesystem(inner, { mountinfo: `${nfs}3 2 0:3 / ${escaped} rw - ext4 c rw\n` })).toBeUndefined();
    expect(networkFilesystem(inner, { mountinfo: `${nfs}3 2 0:3 / ${directory} rw - ext4 c rw\n` })).toBeUndefined();
    expect(networkFilesystem(`${directory}x`, { mountinfo: nfs })).toBeUndefined();
  });

  it("looks at where a directory would be made, if it is not there yet", () => {
    const directory = scratch();
    const nfs = `1 0 0:1 / / rw - ext4 a rw\n2 1 0:2 / ${directory} rw - lustre b rw\n`;
    expect(networkFilesystem(join(directory, "not/there"), { mountinfo: nfs })).toBe("lustre");
  });

  it("knows the kernel's own by number where there is no mount table", () => {
    expect(networkFilesystem("/", { mountinfo: "", type: 0x6969 })).toBe("nfs");
    expect(networkFilesystem("/", { mountinfo: "", type: 0xff534d42 | 0 })).toBe("cifs");
    expect(networkFilesystem("/", { mountinfo: "", type: 0xef53 })).toBeUndefined();
  });

  it("finds none under a real temporary directory", () => {
    expect(networkFilesystem(scratch())).toBeUndefined();
  });
});
