/**
 * Loads the files of dist/bundle with V8's code cache, which saves a third of the start of a verb. Node has such a cache since
 * version 22; for Node 20 this file has its own.
 *
 * The cache lies beside the bundle, so whoever can write it can write the program as well. Only the bundle's owner writes it, and a failure to
 * write is no failure of the program. Each file that is loaded by itself, such as a verb, has one file in the cache, with the code of
 * all that it requires. Names of files in the bundle change with their content, so an entry of the cache is never out of date.
 */
import {
  closeSync,
  fsyncSync,
  mkdirSync,
  openSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeSync,
} from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { Script } from "node:vm";
import { crc32 } from "node:zlib";

interface CacheFile {
  readonly path: string;
  readonly scripts: Map<string, Script>;
}

interface Module {
  exports: unknown;
}

const CACHE = join(__dirname, "cache");
const THREAD_WRITES_MS = 50;
const modules = new Map<string, Module>();
const cached = new Map<string, Buffer>();
const unwritten: CacheFile[] = [];
const requireOther = createRequire(join(__dirname, "load.cjs"));
/** The file whose requirements are being loaded. */
let current: CacheFile | undefined;

/** `name` of a file in the bundle. A thread can be terminated without an event, so it writes its cache soon. */
export function load(name: string, inThread = false): unknown {
  const { enableCompileCache } = requireOther("node:module") as { enableCompileCache?: (dir?: string) => void };
  if (enableCompileCache !== undefined) {
    // For others Node has a folder of their own.
    enableCompileCache(isOwner() ? CACHE : undefined);
    return requireOther(`./${name}`);
  }
  if (inThread) setTimeout(writeCache, THREAD_WRITES_MS).unref();
  else process.once("exit", writeCache);
  return requireFile(`./${name}`);
}

function requireFile(id: string): unknown {
  if (!id.startsWith("./")) return requireOther(id);
  const known = modules.get(id);
  if (known !== undefined) return known.exports;
  if (current !== undefined) return compileAndRun(id, current);
  const root = openCache(id);
  current = root;
  try {
    return compileAndRun(id, root);
  } finally {
    current = undefined;
  }
}

function compileAndRun(id: string, root: CacheFile): unknown {
  const module: Module = { exports: {} };
  modules.set(id, module);
  const filename = join(__dirname, id);
  const cachedData = cached.get(id);
  const script = new Script(
    `(function (exports, require, module, __filename, __dirname) {${readFileSync(filename, "utf8")}\n})`,
    {
      filename,
      ...(cachedData === undefined ? {} : { cachedData }),
    },
  );
  if (cachedData === undefined) root.scripts.set(id, script);
  const run = script.runInThisContext() as (...args: unknown[]) => void;
  run(module.exports, requireFile, module, filename, __dirname);
  return module.exports;
}

/**
 * Node's version is part of the name. V8 refuses data that its version or its flags do not fit, but data that was damaged
 * would end the process, so the file begins with a checksum: of the rest, which is the length of the index, the index, the data.
 */
function openCache(id: string): CacheFile {
  const path = join(CACHE, `${id.slice(2)}-${process.version}-${process.arch}`);
  try {
    const content = readFileSync(path);
    if (content.readUInt32LE() !== crc32(content.subarray(4))) throw new Error("damaged");
    const start = 8 + content.readUInt32LE(4);
    for (const [name, first, end] of JSON.parse(content.toString("utf8", 8, start)) as [string, number, number][])
      cached.set(name, content.subarray(start + first, start + end));
    return { path, scripts: new Map() };
  } catch {
    const root = { path, scripts: new Map() };
    unwritten.push(root);
    return root;
  }
}

const isOwner = (): boolean => statSync(__dirname).uid === process.getuid?.();

function writeCache(): void {
  try {
    if (!isOwner()) return;
    for (const { path, scripts } of unwritten.splice(0)) {
      const parts: Buffer[] = [];
      let size = 0;
      const entries = Array.from(scripts, ([name, script]) => {
        const data = script.createCachedData();
        parts.push(data);
        size += data.length;
        return [name, size - data.length, size];
      });
      const index = Buffer.from(JSON.stringify(entries));
      const content = Buffer.concat([Buffer.alloc(8), index, ...parts]);
      content.writeUInt32LE(index.length, 4);
      content.writeUInt32LE(crc32(content.subarray(4)), 0);
      writeAtomically(path, content);
    }
  } catch {
    // Without a cache, the next start takes as long as this one.
  }
}

function writeAtomically(path: string, content: Buffer): void {
  mkdirSync(CACHE, { recursive: true });
  const draft = `${path}.${process.pid}`;
  const fd = openSync(draft, "wx", 0o644);
  try {
    writeSync(fd, content);
    fsyncSync(fd);
    renameSync(draft, path);
  } catch (cause) {
    rmSync(draft, { force: true });
    throw cause;
  } finally {
    closeSync(fd);
  }
}
