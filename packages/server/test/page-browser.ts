/** The page of a server in a browser, for tests: its model answers what they have written. */
import { spawnSync } from 'node:child_process';
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { testSettings } from '@x/testing/settings';
import { type Browser, chromium, type Page } from 'playwright-core';
import { afterAll, beforeAll } from 'vitest';
import { type RunningServer, serve } from '../src';
import { type Script, type ScriptedModel, scriptedModel } from './scripted';

/** tools/setup.mjs installs it for the tests. */
export const CHROMIUM = ['chromium', 'chromium-browser', 'google-chrome']
  .map((name) => spawnSync('sh', ['-c', `command -v ${name}`], { encoding: 'utf8' }).stdout.trim())
  .find((path) => path !== '');
const TOKENIZER = fileURLToPath(new URL('../../../models/tiny/llama/tokenizer.json', import.meta.url));

export interface Web {
  browser: Browser;
  server: RunningServer;
  scripted: ScriptedModel;
  /** The answers that come next. */
  scripts: Script[];
}

/** A server and a browser for the tests of a `describe`. */
export function useWeb(): Web {
  const web = { scripts: [] } as unknown as Web;
  beforeAll(async () => {
    web.scripted = await scriptedModel(TOKENIZER, () => web.scripts.shift() ?? textOf('Nothing was prepared.'));
    web.server = await serve({ models: { 'scripted-model': web.scripted.model }, port: 0 });
    web.browser = await chromium.launch({
      executablePath: CHROMIUM,
      args: ['--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage'],
    });
  });
  afterAll(async () => {
    await web.browser?.close();
    await web.server?.close({ timeoutMs: 0 });
  });
  return web;
}

/**
 * A fresh browser profile with the page open; `problems` are errors and requests that the policy refused.
 * @param options.before a program that runs in the page before its own
 */
export async function open({ browser, server }: Web, { width = 1100, height = 760, before = '' } = {}) {
  const context = await browser.newContext({ viewport: { width, height } });
  if (before) await context.addInitScript(before);
  const problems: string[] = [];
  const foreign: string[] = [];
  /** Another tab of the profile. */
  const tab = async () => {
    const page = await context.newPage();
    page.setDefaultTimeout(10_000);
    page.on('pageerror', (error) => problems.push(String(error)));
    page.on('console', (message) => message.type() === 'error' && problems.push(message.text()));
    page.on('request', (request) => {
      if (!request.url().startsWith(server.url) && !request.url().startsWith('blob:')) foreign.push(request.url());
    });
    page.on('dialog', (dialog) => dialog.accept('Renamed'));
    await page.goto(server.url);
    await hasModels(page);
    return page;
  };
  return { page: await tab(), tab, problems, foreign, close: () => context.close() };
}

export const hasModels = (page: Page) => page.locator('#model option').first().waitFor({ state: 'attached' });
export const say = async (page: Page, text: string) => {
  await page.fill('#input', text);
  await page.press('#input', 'Enter');
};
export const idle = (page: Page) => page.locator('#send:visible').waitFor();
export const answers = (page: Page) => page.locator('.assistant .body').allInnerTexts();
export const titles = (page: Page) => page.locator('#conversations .title').allInnerTexts();
export const importText = (page: Page, text: string) =>
  page.setInputFiles('#file', { name: 'a.json', mimeType: 'application/json', buffer: Buffer.from(text) });
export const shot = async (page: Page, name: string) => {
  const { screenshots } = testSettings;
  if (screenshots === undefined) return;
  mkdirSync(screenshots, { recursive: true });
  await page.screenshot({ path: join(screenshots, `${name}.png`) });
};

export const textOf = (text: string, delayMs = 0): Script => ({
  pieces: (text.match(/.{1,7}/gs) ?? []).map((part) => ({ type: 'text', text: part })),
  delayMs,
});

/** An answer whose end comes when `goOn` is called. */
export function heldText(text: string, delayMs = 0): { script: Script; goOn: () => void } {
  let goOn = () => {};
  const until = new Promise<void>((resolve) => {
    goOn = resolve;
  });
  return { script: { ...textOf(text, delayMs), until }, goOn };
}
