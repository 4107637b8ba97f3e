/**
 * Loads the files of dist/bundle with V8's code cache, which saves a third of the start time of a verb. Node has such a
 * cache since version 22; for Node 20 this file implements one.
 *
 * The cache is beside the bundle, so only users who can change the program can change the cache. Only the owner of the
 * bundle writes it, and a failed write is ignored. Each entry point, such as a verb, has one file in the cache: its
 * source and the sources that it requires, as one script, with the compiled code of this script. File names in the
 * bundle change with their content, so a cache entry is never out of date.
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

interface Module {
  exports: unknown;
}

type Factory = (exports: unknown, require: unknown, module: Module, filename: string, dirname: string) => void;

interface CacheEntry {
  readonly source: string;
  readonly code: Buffer;
}

const CACHE = join(__dirname, "cache");
/** Modules of Node that take long to load and that most verbs do not use. */
const LAZY: ReadonlySet<string> = new Set(
  "child_process crypto dns/promises fs/promises http https os tls worker_threads zlib".split(" "),
);
const THREAD_WRITES_MS = 50;
/** A process that ran this long writes the cache again if its code has grown by this factor. */
const LONG_MS = 2_000;
const GROWN = 1.05;
/** The length of the code, which follows. V8 copies code that is not aligned. */
const HEAD = 8;
const modules = new Map<string, Module>();
/** Of all files that were compiled. */
const factories = new Map<string, Factory>();
const entries: {
  readonly path: string;
  readonly source: string;
  readonly script: Script;
  /** Bytes of its code in the cache. */
  cachedBytes: number;
}[] = [];
const requireOther = createRequire(join(__dirname, "load.cjs"));

/** `name` of a file in the bundle. A thread can be terminated without an event, so it writes its cache soon. */
export function load(name: string, inThread = false): unknown {
  const { enableCompileCache } = requireOther("node:module") as { enableCompileCache?: (dir?: string) => void };
  if (enableCompileCache !== undefined) {
    // Other users get Node's default directory.
    enableCompileCache(isOwner() ? CACHE : undefined);
    return requireOther(`./${name}`);
  }
  if (inThread) for (const ms of [THREAD_WRITES_MS, LONG_MS]) setTimeout(writeCache, ms, ms === LONG_MS).unref();
  else process.once("exit", () => writeCache(process.uptime() * 1_000 > LONG_MS));
  return requireFile(`./${name}`);
}

function requireFile(id: string): unknown {
  // Packages leave out the prefix.
  if (!id.startsWith("./")) return LAZY.has(id.replace(/^node:/, "")) ? loadLater(id) : requireOther(id);
  const known = modules.get(id);
  if (known !== undefined) return known.exports;
  const module: Module = { exports: {} };
  modules.set(id, module);
  factoryOf(id)(module.exports, requireFile, module, join(__dirname, id), __dirname);
  return module.exports;
}

function factoryOf(id: string): Factory {
  if (!factories.has(id)) compile(id);
  const factory = factories.get(id);
  if (factory === undefined) throw new Error(`${id} is not in the bundle`);
  return factory;
}

/** Compiles the file and all that it requires. */
function compile(id: string): void {
  const path = join(CACHE, `${id.slice(2)}-${process.version}-${process.arch}`);
  const cached = readCache(path);
  const source = cached?.source ?? joinSources(id);
  const filename = join(__dirname, id);
  const script = new Script(source, { filename, ...(cached === undefined ? {} : { cachedData: cached.code }) });
  entries.push({ path, source, script, cachedBytes: cached?.code.length ?? 0 });
  const compiled = script.runInThisContext() as Readonly<Record<string, Factory>>;
  for (const [name, factory] of Object.entries(compiled)) factories.set(name, factory);
}

/** One expression: an object with the function of each file that has none yet. The files of the bundle are ASCII. */
function joinSources(id: string): string {
  const required = JSON.parse(readFileSync(join(__dirname, "required.json"), "utf8")) as Record<string, string[]>;
  const missing = (required[id] ?? [id]).filter((name) => !factories.has(name));
  const parts = missing.map((name) => {
    const source = readFileSync(join(__dirname, name), "latin1");
    return `"${name}": (function (exports, require, module, __filename, __dirname) {${source}\n})`;
  });
  return `({${parts.join(",\n")}})`;
}

/** Stands for the module, and loads it when something of it is first used. */
function loadLater(id: string): unknown {
  let loaded: object | undefined;
  const load = (): object => (loaded ??= requireOther(id) as object);
  return new Proxy(
    {},
    {
      get: (_, name) => Reflect.get(load(), name),
      has: (_, name) => Reflect.has(load(), name),
      ownKeys: () => Reflect.ownKeys(load()),
      getOwnPropertyDescriptor: (_, name) => {
        const found = Reflect.getOwnPropertyDescriptor(load(), name);
        // A proxy may only report a property as not configurable if its own target has it.
        return found && { ...found, configurable: true };
      },
    },
  );
}

/**
 * The name contains Node's version. V8 rejects code of another version or other flags, but damaged code would crash the
 * process. So the file contains everything twice: comparing is faster than loading a module that computes a checksum.
 */
function readCache(path: string): CacheEntry | undefined {
  try {
    const content = readFileSync(path);
    const half = content.length / 2;
    if (!content.subarray(0, half).equals(content.subarray(half))) return undefined;
    const end = HEAD + content.readUInt32LE();
    return { code: content.subarray(HEAD, end), source: content.toString("latin1", end, half) };
  } catch {
    return undefined;
  }
}

const isOwner = (): boolean => statSync(__dirname).uid === process.getuid?.();

/** V8 compiles a function when it is first called. So the code of a short first run lacks what longer runs need. */
function writeCache(isLong: boolean): void {
  try {
    const changed = entries.filter(({ cachedBytes }) => isLong || cachedBytes === 0);
    if (changed.length === 0 || !isOwner()) return;
    for (const entry of changed) {
      const { path, source, script } = entry;
      const code = script.createCachedData();
      if (code.length < entry.cachedBytes * GROWN) continue;
      entry.cachedBytes = code.length;
      const head = Buffer.alloc(HEAD);
      head.writeUInt32LE(code.length);
      const content = Buffer.concat([head, code, Buffer.from(source, "latin1")]);
      writeAtomically(path, Buffer.concat([content, content]));
    }
  } catch {
    // Without a cache, the next start is as slow as this one.
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
