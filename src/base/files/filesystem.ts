/**
 * Detects network filesystems. Locks and syncs are not reliable there, so a data directory must not be on one.
 * Filesystems of the kernel are recognized by the type number of statfs. All FUSE filesystems share one number and are
 * recognized by their name in the mount table.
 */
import * as fs from "node:fs";
import { dirname, resolve } from "node:path";
import { errnoOf } from "../errors.js";

/** Numbers from the kernel's magic.h and the modules' own headers. */
const BY_NUMBER = new Map<number, string>([
  [0x6969, "nfs"],
  [0xff534d42, "cifs"],
  [0xfe534d42, "smb2"],
  [0x517b, "smbfs"],
  [0x0bd00bd0, "lustre"],
  [0x47504653, "gpfs"],
  [0x19830326, "beegfs"],
  [0x00c36400, "ceph"],
  [0x01021997, "9p"],
  [0x5346414f, "afs"],
  [0x6b414653, "afs"],
  [0x73757245, "coda"],
  [0x564c, "ncpfs"],
  [0xaad7aaea, "panfs"],
  [0x20030528, "orangefs"],
  [0x01161970, "gfs2"],
  [0x7461636f, "ocfs2"],
]);

const NAMES = new Set([
  ..."nfs nfs4 cifs smb smb2 smb3 smbfs lustre gpfs beegfs ceph 9p afs kafs auristorfs coda ncpfs ncp panfs".split(" "),
  ..."orangefs pvfs2 gfs gfs2 ocfs2 glusterfs wekafs virtiofs vboxsf vmhgfs prl_fs davfs sshfs acfs".split(" "),
]);
/** Remote FUSE filesystems: `fuse.<name>` in the mount table. */
const FUSE_NAMES = new Set([
  ..."sshfs ceph ceph-fuse glusterfs s3fs rclone juicefs davfs davfs2 curlftpfs gcsfuse goofys moosefs mfs lizardfs".split(
    " ",
  ),
  ..."beegfs hadoop-fuse-dfs quantcast vmhgfs-fuse smbnetfs afp cvmfs2 dfuse onedriver mountpoint-s3 blobfuse2 seaweedfs".split(
    " ",
  ),
]);

export interface FilesystemFacts {
  /** The text of /proc/self/mountinfo. */
  readonly mountinfo?: string;
  /** The type number of statfs. */
  readonly type?: number;
}

/** The name of the network filesystem of the directory, which need not exist yet; undefined if it is local. */
export function networkFilesystem(directory: string, facts: FilesystemFacts = {}): string | undefined {
  const real = realPath(directory);
  const name = mountedType(real, facts.mountinfo ?? readMountinfo());
  if (name !== undefined && isNetwork(name)) return name;
  const number = facts.type ?? (facts.mountinfo === undefined ? typeNumber(real) : undefined);
  return number === undefined ? undefined : BY_NUMBER.get(number >>> 0);
}

function isNetwork(name: string): boolean {
  if (name.startsWith("fuse.")) return FUSE_NAMES.has(name.slice("fuse.".length));
  return NAMES.has(name);
}

/** The type of the innermost mount that contains the path. Of several mounts at one place, the last one counts. */
function mountedType(path: string, mountinfo: string): string | undefined {
  let best: { readonly point: string; readonly type: string } | undefined;
  for (const line of mountinfo.split("\n")) {
    // id parent major:minor root POINT options [optional fields] - TYPE source options
    const fields = line.split(" ");
    const point = fields[4];
    const type = fields[fields.indexOf("-", 6) + 1];
    if (point === undefined || type === undefined || !fields.includes("-", 6)) continue;
    const where = point.replace(/\\([0-7]{3})/g, (_, octal: string) => String.fromCharCode(Number.parseInt(octal, 8)));
    const holds = where === "/" || path === where || path.startsWith(`${where}/`);
    if (holds && (best === undefined || where.length >= best.point.length)) best = { point: where, type };
  }
  return best?.type;
}

function readMountinfo(): string {
  try {
    return fs.readFileSync("/proc/self/mountinfo", "utf8");
  } catch {
    // Not Linux.
    return "";
  }
}

function typeNumber(path: string): number | undefined {
  // Other systems use other numbers.
  return process.platform === "linux" ? fs.statfsSync(path).type : undefined;
}

/** The real path of the directory, or of its nearest existing parent. */
function realPath(directory: string): string {
  let path = resolve(directory);
  for (;;) {
    try {
      return fs.realpathSync(path);
    } catch (cause) {
      if (errnoOf(cause) !== "ENOENT" || path === dirname(path)) throw cause;
      path = dirname(path);
    }
  }
}
