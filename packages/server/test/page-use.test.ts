// The page used with a keyboard or a screen reader, on the clipboard, with edits, broken answers and long conversations.
import type { Page } from 'playwright-core';
import { describe, expect, test } from 'vitest';
import { answers, CHROMIUM, heldText, idle, importText, open, say, textOf, titles, useWeb } from './page-browser';

/** The name of what has the focus. */
const focused = (page: Page) =>
  page.evaluate<string>(`document.activeElement.ariaLabel ?? document.activeElement.textContent`);
const pressOn = async (page: Page, selector: string, key = 'Enter') => {
  await page.locator(selector).last().focus();
  await page.keyboard.press(key);
};

describe.skipIf(!CHROMIUM)('using the page', () => {
  const web = useWeb();

  test('the focus stays where a keyboard goes on', async () => {
    const { page, problems, close } = await open(web);
    const { script, goOn } = heldText('Second, at last.');
    web.scripts = [textOf('First.'), script, textOf('More.')];
    await say(page, 'Hello');
    await idle(page);
    expect(await focused(page)).toBe('Message');
    await pressOn(page, '[aria-label=Regenerate]');
    expect(await focused(page)).toBe('Stop');
    goOn();
    await idle(page);
    expect(await focused(page)).toBe('Regenerate');
    await pressOn(page, '[aria-label="Version before"]');
    expect([await answers(page), await focused(page)]).toEqual([['First.'], 'Version before']);
    await page.keyboard.press('Enter');
    expect([await answers(page), await focused(page)]).toEqual([['Second, at last.'], 'Version before']);
    await pressOn(page, '[aria-label=Continue]');
    await idle(page);
    expect(await focused(page)).toBe('Continue');
    await pressOn(page, '[aria-label=Edit]');
    expect(await focused(page)).toBe('Edit the message');
    await page.keyboard.press('Escape');
    expect([await page.locator('.editor').count(), await focused(page)]).toEqual([0, 'Edit']);
    await page.keyboard.press('Enter');
    await pressOn(page, '[aria-label=Save]');
    expect(await focused(page)).toBe('Edit');
    await pressOn(page, '[aria-label=Rename]');
    expect([await titles(page), await focused(page)]).toEqual([['Renamed'], 'Rename']);
    await pressOn(page, '[aria-label=Delete]');
    expect(await focused(page)).toBe('Message');
    expect(problems).toEqual([]);
    await close();
  });

  test('Escape closes the conversations of a small screen, then stops an answer', async () => {
    const { page, close } = await open(web, { width: 360, height: 640 });
    const { script, goOn } = heldText('A long answer.');
    web.scripts = [script];
    await say(page, 'Hello');
    await pressOn(page, '#show');
    expect(await focused(page)).toBe('Hide conversations');
    await page.keyboard.press('Escape');
    expect([await page.isVisible('#new'), await focused(page)]).toEqual([false, 'Show conversations']);
    expect(await page.isVisible('#stop')).toBe(true);
    await page.keyboard.press('Escape');
    await idle(page);
    goOn();
    expect(await page.textContent('.assistant .hint')).toBe('Stopped.');
    await close();
  });

  test('a screen reader learns who speaks, and reads an answer at its end', async () => {
    const { page, close } = await open(web);
    const { script, goOn } = heldText('A long answer.');
    web.scripts = [script];
    const isBusy = () => page.getAttribute('#messages', 'aria-busy');
    expect(await isBusy()).toBe('false');
    await say(page, 'Hello');
    await page.locator('.assistant .body', { hasText: 'A long' }).waitFor();
    expect(await isBusy()).toBe('true');
    goOn();
    await idle(page);
    expect(await isBusy()).toBe('false');
    expect(await page.getByRole('article', { name: 'You' }).locator('.body').textContent()).toBe('Hello');
    expect(await page.getByRole('article', { name: 'Answer' }).locator('.body').textContent()).toBe('A long answer.');
    await close();
  });

  test('texts are copied without the clipboard of secure pages, or the page says that they are not', async () => {
    const { page, problems, close } = await open(web, {
      before: "Object.defineProperty(navigator, 'clipboard', { value: undefined })",
    });
    const pasted = async () => {
      await page.fill('#input', '');
      await page.press('#input', 'Control+V');
      return page.inputValue('#input');
    };
    web.scripts = [textOf('```js\nconst x = 1;\n```')];
    await say(page, 'Copy me');
    await idle(page);
    await pressOn(page, '.user [aria-label=Copy]');
    expect(await focused(page)).toBe('Copy');
    expect(await pasted()).toBe('Copy me');
    await page.click('.block button');
    await page.locator('.block button', { hasText: 'Copied' }).waitFor();
    expect(await pasted()).toBe('const x = 1;');
    await page.evaluate('document.execCommand = () => false');
    await page.click('.user [aria-label=Copy]');
    await page.waitForSelector('#notice:visible');
    expect(await page.textContent('#notice')).toMatch('copy');
    expect(problems).toEqual([]);
    await close();
  });

  test('an open edit stays while another message is sent', async () => {
    const { page, close } = await open(web);
    web.scripts = [textOf('First.'), textOf('Second.'), textOf('Third.')];
    await say(page, 'one');
    await idle(page);
    await page.locator('.assistant').getByText('Edit').click();
    await page.fill('.editor', 'Improved.');
    await say(page, 'two');
    await page.locator('.assistant .body', { hasText: 'Second.' }).waitFor();
    await idle(page);
    expect(await page.inputValue('.editor')).toBe('Improved.');
    await page.locator('.message button', { hasText: 'Save' }).click();
    expect(await answers(page)).toEqual(['Improved.']);
    await page.getByLabel('Version before').click();
    expect(await answers(page)).toEqual(['First.', 'Second.']);
    await close();
  });

  test('an answer that ends before its end is an error, and an empty one is not continued', async () => {
    const { page, close } = await open(web);
    const event = (delta: object) => `data: ${JSON.stringify({ choices: [{ delta, finish_reason: null }] })}\n\n`;
    const cut = (body: string) =>
      page.route('**/v1/chat/completions', (route) => route.fulfill({ contentType: 'text/event-stream', body }), {
        times: 1,
      });
    const isOffered = (name: string) => page.locator(`.assistant [aria-label=${name}]`).isVisible();
    await cut(event({ content: 'Half an' }));
    await say(page, 'Hello');
    await page.waitForSelector('.assistant .error');
    expect(await answers(page)).toEqual(['Half an']);
    expect(await page.textContent('.assistant .error')).toBe('The connection ended before the answer did.');
    expect(await isOffered('Continue')).toBe(true);
    await cut('');
    await page.click('[aria-label=Regenerate]');
    await idle(page);
    expect(await answers(page)).toEqual(['']);
    expect([await isOffered('Continue'), await isOffered('Regenerate')]).toEqual([false, true]);
    // The network fails within an answer.
    await page.evaluate(`{
      const { fetch } = window;
      window.fetch = async () => {
        window.fetch = fetch;
        const bytes = new TextEncoder().encode(${JSON.stringify(event({ content: 'Half of it' }))});
        const start = (controller) => {
          controller.enqueue(bytes);
          setTimeout(() => controller.error(new TypeError('network error')), 300);
        };
        return new Response(new ReadableStream({ start }));
      };
    }`);
    await page.click('[aria-label=Regenerate]');
    await idle(page);
    expect(await answers(page)).toEqual(['Half of it']);
    expect(await page.textContent('.assistant .error')).toBe('The connection ended before the answer did.');
    await close();
  });

  test('a conversation of 2,000 messages opens at once, at its end, and comes whole', async () => {
    const { page, close } = await open(web);
    const text = 'Some **bold** text with `code`.\n\n- one\n- two\n\n```js\nconst x = 1;\n```';
    const messages = Array.from({ length: 2000 }, (_, i) => ({
      id: `m${i}`,
      parent: i === 0 ? null : `m${i - 1}`,
      role: i % 2 === 0 ? 'user' : 'assistant',
      content: `${i}: ${text}`,
    }));
    const long = { id: 'a', title: 'Long', messages: Object.fromEntries(messages.map((one) => [one.id, one])) };
    await importText(page, JSON.stringify({ conversations: [{ ...long, leaf: 'm1999' }] }));
    await page.locator('#conversations .title').waitFor();
    await page.click('#new');
    const took = await page.evaluate<number>(`{
      const begun = performance.now();
      document.querySelector('#conversations .title').click();
      performance.now() - begun;
    }`);
    expect(took).toBeLessThan(500);
    await expect.poll(() => page.locator('.message').count(), { timeout: 10_000 }).toBe(2000);
    expect(await page.locator('.message').first().getAttribute('data-id')).toBe('m0');
    const below = () => page.$eval('#scroller', (node) => node.scrollHeight - node.scrollTop - node.clientHeight);
    await expect.poll(below).toBeLessThan(40);
    await close();
  });
});
