/** Names what was skipped, at the end of a run. Its name, or the note of `context.skip`, says why. */
import type { Reporter, TestCase, TestModule, TestSuite, Vitest } from "vitest/node";

export class SkippedReporter implements Reporter {
  #isFiltered = false;

  onInit(vitest: Vitest): void {
    this.#isFiltered = vitest.config.testNamePattern !== undefined;
  }

  onTestRunEnd(modules: readonly TestModule[]): void {
    // What `-t` leaves out was not asked for.
    if (this.#isFiltered) return;
    const lines = modules.flatMap((module) =>
      Array.from(module.children.allTests("skipped"), (test) => {
        const note = noteOf(test);
        return `${module.relativeModuleId}: ${whole(test).fullName}${note === undefined ? "" : ` (${note})`}`;
      }),
    );
    for (const line of new Set(lines)) console.log(`skipped: ${line}`);
  }
}

function noteOf(test: TestCase): string | undefined {
  const result = test.result();
  return result.state === "skipped" ? result.note : undefined;
}

/** The outermost suite that was skipped as a whole, or the test itself. */
function whole(one: TestCase | TestSuite): TestCase | TestSuite {
  const { parent } = one;
  return parent.type === "suite" && parent.options.mode === "skip" ? whole(parent) : one;
}
