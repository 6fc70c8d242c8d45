// What the page keeps in the browser: across reloads, between tabs, without room, and where files are hostile.
import type { Page } from 'playwright-core';
import { describe, expect, test } from 'vitest';
import { answers, CHROMIUM, heldText, idle, importText, open, say, textOf, titles, useWeb } from './page-browser';

const questions = (page: Page) => page.locator('.user .body').allInnerTexts();
const shown = (page: Page, text: string) => page.locator('.message .body', { hasText: text }).waitFor();
const noticeOf = (page: Page) => page.locator('#notice:visible').textContent();
const exported = (conversation: object) => JSON.stringify({ conversations: [conversation] });
const messageOf = (id: string, parent: string | null, content = id) => ({ id, parent, role: 'user', content });

describe.skipIf(!CHROMIUM)('what the page keeps', () => {
  const web = useWeb();

  test('an answer whose page was closed is kept as one that is not complete, and goes on', async () => {
    const { page, problems, close } = await open(web);
    const { script, goOn } = heldText('Half an answer, more', 5);
    web.scripts = [script, textOf('and the rest.')];
    await say(page, 'Hello');
    await shown(page, 'Half an answer');
    await page.reload();
    goOn();
    expect(await page.locator('.assistant .hint').textContent()).toMatch('not complete');
    expect((await answers(page))[0]).toMatch('Half an answer');
    await page.click('.assistant >> text=Continue');
    await idle(page);
    expect(web.scripted.asked.at(-1)!.options.continueLast).toBe(true);
    expect((await answers(page))[0]).toMatch(/^Half an answer.*and the rest\.$/);
    await page.reload();
    await shown(page, 'and the rest.');
    expect(await page.locator('.hint:visible').count()).toBe(0);
    expect(problems).toEqual([]);
    await close();
  });

  test('another tab shows what is written while it comes, and how it ends', async () => {
    const { page, tab, problems, close } = await open(web);
    const other = await tab();
    web.scripts = [textOf('word '.repeat(400), 20)];
    await say(page, 'Hello');
    await other.click('#conversations >> text=Hello');
    await shown(other, 'word word word');
    expect(await page.isVisible('#stop')).toBe(true);
    expect(await page.locator('.assistant .hint').count()).toBe(0);
    await page.click('#stop');
    await other.locator('.assistant .hint', { hasText: /^Stopped\.$/ }).waitFor();
    expect(await answers(other)).toEqual(await answers(page));
    expect(problems).toEqual([]);
    await close();
  });

  test('two tabs write in one conversation, and nothing is lost', async () => {
    const { page, tab, problems, close } = await open(web);
    await say(page, 'one');
    await idle(page);
    const other = await tab();
    // What the first tab writes on is another branch than what the second one says meanwhile.
    const { script, goOn } = heldText('A long answer.');
    web.scripts = [script, textOf('Two.'), textOf('Three.')];
    await page.click('.assistant >> text=Regenerate');
    await shown(page, 'A long');
    await say(other, 'two');
    await shown(other, 'Two.');
    await other.locator('.user').first().getByText('Edit').click();
    await other.fill('.editor', 'an edit that is not sent');
    goOn();
    await idle(page);
    expect(await answers(page)).toEqual(['A long answer.']);
    await other.locator('.assistant .tools', { hasText: '1/2' }).waitFor();
    expect(await other.inputValue('.editor')).toBe('an edit that is not sent');
    await page.getByLabel('Version before').click();
    expect(await questions(page)).toEqual(['one', 'two']);
    await say(page, 'three');
    await shown(other, 'Three.');
    expect(await other.inputValue('.editor')).toBe('an edit that is not sent');
    await other.reload();
    await shown(other, 'Three.');
    expect(await questions(other)).toEqual(['one', 'two', 'three']);
    await other.getByLabel('Version after').click();
    expect(await answers(other)).toEqual(['A long answer.']);
    expect(problems).toEqual([]);
    await close();
  });

  test('a conversation deleted in another tab comes back only by being written in', async () => {
    const { page, tab, problems, close } = await open(web);
    await say(page, 'About foxes');
    await idle(page);
    await page.click('#new');
    await say(page, 'About kings');
    await idle(page);
    const other = await tab();
    const remove = (title: string) =>
      other.locator('#conversations li', { hasText: title }).getByLabel('Delete').click();
    await remove('About foxes');
    await expect.poll(() => titles(page)).toEqual(['About kings']);
    await say(page, 'something else');
    await idle(page);
    await remove('About kings');
    await page.waitForSelector('#notice:visible');
    expect([await titles(page), await noticeOf(page)]).toEqual([[], expect.stringMatching('deleted')]);
    await other.reload();
    expect(await titles(other)).toEqual([]);
    await say(page, 'and on');
    await idle(page);
    await expect.poll(() => titles(other)).toEqual(['About kings']);
    await other.click('#conversations .title');
    expect(await questions(other)).toEqual(['About kings', 'something else', 'and on']);
    expect(problems).toEqual([]);
    await close();
  });

  test('a conversation deleted while it is answered stays deleted', async () => {
    const { page, tab, close } = await open(web);
    const other = await tab();
    for (const deleting of [page, other]) {
      const { script, goOn } = heldText('A long answer.');
      web.scripts = [script];
      await say(page, 'Hello');
      await shown(page, 'A long');
      await deleting.locator('#conversations li').getByLabel('Delete').click();
      await idle(page);
      goOn();
      await page.reload();
      expect(await titles(page)).toEqual([]);
    }
    await close();
  });

  test('without room, the page says so and goes on', async () => {
    const { page, problems, close } = await open(web);
    await page.evaluate(`for (let size = 5e6; size >= 1; size /= 2)
      for (let i = 0; i < 2; i++) try { localStorage.setItem('x' + size + i, 'x'.repeat(size)); } catch {}`);
    await importText(page, exported({ id: 'a', title: 'Imported', messages: { b: messageOf('b', null) }, leaf: 'b' }));
    expect(await noticeOf(page)).toMatch('no more room');
    expect([await titles(page), await questions(page)]).toEqual([['Imported'], ['b']]);
    await page.click('#new');
    expect(await page.isVisible('#notice')).toBe(false);
    await page.click('#open-settings');
    await page.fill('[name=system]', 'Be brief.');
    await page.click('#settings [type=submit]');
    expect(await noticeOf(page)).toMatch('no more room');
    await say(page, 'Hello');
    await idle(page);
    expect(web.scripted.asked.at(-1)!.messages[0]).toEqual({ role: 'system', content: 'Be brief.' });
    expect(problems).toEqual([]);
    await close();
  });

  test('where the browser denies its storage, the page says so once and works', async () => {
    const denied = `Object.defineProperty(window, 'localStorage', {
      get() { throw new DOMException('Access is denied for this document.', 'SecurityError'); } });`;
    const { page, problems, close } = await open(web, { before: denied });
    expect(await noticeOf(page)).toMatch('keeps nothing');
    await say(page, 'Hello');
    await idle(page);
    await page.click('#new');
    await importText(page, exported({ id: 'a', title: 'Imported', messages: { b: messageOf('b', null) }, leaf: 'b' }));
    await expect.poll(() => titles(page)).toEqual(['Hello', 'Imported']);
    await page.click('#conversations >> text=Hello');
    expect(await questions(page)).toEqual(['Hello']);
    expect(await page.isVisible('#notice')).toBe(false);
    expect(problems).toEqual([]);
    await close();
  });

  test('files with names of JavaScript or loops for ids do no harm', async () => {
    const { page, problems, close } = await open(web);
    const refused = [
      { id: 'a', messages: { b: messageOf('b', 'constructor') }, leaf: 'b' },
      { id: 'a', messages: { b: messageOf('b', 'b') }, leaf: 'b' },
      { id: 'a', messages: { b: messageOf('b', 'c'), c: messageOf('c', 'b'), d: messageOf('d', null) }, leaf: 'd' },
    ];
    for (const one of refused) {
      await page.reload();
      await importText(page, exported(one));
      expect(await noticeOf(page)).toMatch('no conversations');
    }
    await importText(page, exported({ id: 'a', title: 'odd leaf', messages: {}, leaf: 'toString' }));
    await expect.poll(() => titles(page)).toEqual(['odd leaf']);
    const odd = ['__proto__', 'constructor', '"]'].map((id, i, ids) => messageOf(id, ids[i - 1] ?? null));
    const messages = `{${odd.map((one) => `${JSON.stringify(one.id)}:${JSON.stringify(one)}`).join()}}`;
    await importText(page, `{"conversations":[{"id":"a","title":"odd ids","messages":${messages},"leaf":"\\"]"}]}`);
    await shown(page, '__proto__');
    await page.reload();
    await expect.poll(() => titles(page)).toEqual(expect.arrayContaining(['odd ids', 'odd leaf']));
    await page.click('#conversations >> text=odd ids');
    expect(await questions(page)).toEqual(['__proto__', 'constructor', '"]']);
    await page.locator('.user').last().getByText('Edit').click();
    await page.fill('.editor', 'plain');
    await page.locator('.message button', { hasText: 'Send' }).click();
    await idle(page);
    expect(await questions(page)).toEqual(['__proto__', 'constructor', 'plain']);
    expect(problems).toEqual([]);
    await close();
  });
});
