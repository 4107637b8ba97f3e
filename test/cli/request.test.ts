import { describe, expect, it } from "vitest";
import { openCliShop } from "./support/cli.js";

describe("laboro request", () => {
  it("prints the answer of a service, byte for byte", async () => {
    const shop = await openCliShop();
    shop.worker().handle("upper", async (body) => Buffer.from(Buffer.from(body).toString().toUpperCase()));
    expect(await shop.laboro(["request", "upper", "hello"])).toEqual({ code: 0, stdout: "HELLO", stderr: "" });
    expect((await shop.laboro(["request", "upper", "-"], { process: true, input: "from\nstdin\n" })).stdout).toBe(
      "FROM\nSTDIN\n",
    );
    expect((await shop.laboro(["request", "upper"])).stdout).toBe("");
  });

  it("that fails is exit code 1, with the words of the service", async () => {
    const shop = await openCliShop();
    shop.worker().handle("broken", async () => {
      throw new Error("out of paper");
    });
    expect(await shop.laboro(["request", "broken", "x"])).toMatchInlineSnapshot(`
      {
        "code": 1,
        "stderr": "laboro: service broken: out of paper (LABORO_SERVICE_FAILED)
      ",
        "stdout": "",
      }
    `);
  });

  it("that nobody answers ends at its timeout", async () => {
    const shop = await openCliShop();
    expect(await shop.laboro(["request", "nobody", "x", "--timeout", "200ms"])).toMatchInlineSnapshot(`
      {
        "code": 1,
        "stderr": "laboro: service nobody: no worker offered it before the deadline (LABORO_DEADLINE)
        laboro services and laboro workers show who could answer
      ",
        "stdout": "",
      }
    `);
  });
});
