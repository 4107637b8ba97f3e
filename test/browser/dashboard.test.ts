import type { Browser } from "playwright-core";
import { afterAll, beforeAll, describe } from "vitest";
import { type Opened, openChromium } from "./chromium.js";
import { closeScenes } from "./scene.js";
import { describeAllocators } from "./suite/allocators.js";
import { describeConversations } from "./suite/conversations.js";
import { describeJob } from "./suite/job.js";
import { describeKeyboard } from "./suite/keyboard.js";
import { describeLarge } from "./suite/large.js";
import { describeLogin } from "./suite/login.js";
import { describePages } from "./suite/pages.js";
import { describeReadOnly } from "./suite/read-only.js";
import { describeSchedules } from "./suite/schedules.js";
import { describeScreenshot } from "./suite/screenshot.js";
import { describeWorkers } from "./suite/workers.js";

/** One browser for all: unpacking and starting it takes longer than most of what is looked at. */
let opened: Opened | undefined;
beforeAll(async () => {
  opened = await openChromium();
}, 120_000);
afterAll(async () => {
  await opened?.close();
  await closeScenes();
});

const browser = (): Browser => {
  if (opened === undefined) throw new Error("there is no browser");
  return opened.browser;
};

describe("the dashboard", { timeout: 180_000 }, () => {
  describe("its pages", () => describePages(browser));
  describe("a job", () => describeJob(browser));
  describe("workers", () => describeWorkers(browser));
  describe("schedules", () => describeSchedules(browser));
  describe("allocators", () => describeAllocators(browser));
  describe("conversations", () => describeConversations(browser));
  describe("by keyboard", () => describeKeyboard(browser));
  describe("for who may only look", () => describeReadOnly(browser));
  describe("with much to show", () => describeLarge(browser));
  describe("login", () => describeLogin(browser));
  describeScreenshot(browser);
});
