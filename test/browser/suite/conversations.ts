/** What is said on a connection, seen while it is said. */
import { connect as connectTcp } from "node:net";
import type { Browser } from "playwright-core";
import { expect, it } from "vitest";
import { until } from "../../support/wait.js";
import { DashboardPage, PATIENCE_MS } from "../dashboard-page.js";
import { Scene } from "../scene.js";

export function describeConversations(browser: () => Browser): void {
  it("are listed, recorded while somebody looks, and shown message by message with their fields", async () => {
    const scene = await Scene.open();
    await scene.worker({ name: "anna", services: { shout: (body) => Buffer.from(body).toString().toUpperCase() } });
    const dashboard = await DashboardPage.open(browser(), scene.broker);
    const { page } = dashboard;
    await dashboard.go("/ui/connections");
    await page.getByRole("link", { name: /anna/ }).click();
    await dashboard.sees("no messages yet");
    expect(await scene.client.request("shout", "hello")).toEqual(Buffer.from("HELLO"));
    const call = page.locator(".sequence li.broker", { hasText: "CALL" });
    await call.waitFor();
    await page.locator(".sequence li.peer", { hasText: "REPLY" }).waitFor();
    await call.locator("summary").click();
    await call.locator(".field-list").getByText("hello", { exact: true }).waitFor();
    expect(await call.locator("dt").allTextContents()).toEqual(["id", "service", "body", "deadline"]);
    await dashboard.shoot("conversation-light");
    expect(await dashboard.faults()).toEqual([]);
    // Nothing is recorded of those that nobody looks at.
    const { connections } = await scene.client.ask("connections", {});
    expect(connections.filter(({ recording }) => recording).map(({ peer }) => peer)).toEqual(["anna"]);
    await dashboard.close();
    await scene.close();
  });

  it("are there for a listener of another protocol, too", async () => {
    const scene = await Scene.open({ listeners: [{ name: "runexp", host: "127.0.0.1", ports: [0] }] });
    const [listener] = scene.broker.listeners;
    const url = new URL(listener?.urls[0] ?? "");
    const socket = connectTcp(Number(url.port), url.hostname);
    socket.on("error", () => {});
    const dashboard = await DashboardPage.open(browser(), scene.broker);
    await dashboard.go("/ui/connections");
    await dashboard.page.getByRole("link", { name: /runexp/ }).click();
    await dashboard.sees("recording");
    await until(
      "something was said",
      async () => {
        // Whatever it is, it is heard; and a listener that will not have it says so or ends the conversation.
        if (socket.writable) socket.write("nonsense\r\n\r\n");
        return (
          (await dashboard.page.locator(".sequence li").count()) > 0 ||
          (await dashboard.page.getByText("ended").count()) > 0
        );
      },
      PATIENCE_MS,
    );
    socket.destroy();
    await dashboard.close();
    await scene.close();
  });
}
