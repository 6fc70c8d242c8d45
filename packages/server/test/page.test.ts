// The page in a browser: what a reader does, what a model writes that must not run, and small screens.
import { describe, expect, test } from 'vitest';
import { serve } from '../src';
import {
  answers,
  CHROMIUM,
  hasModels,
  heldText,
  idle,
  importText,
  open,
  say,
  shot,
  textOf,
  titles,
  useWeb,
} from './page-browser';

describe.skipIf(!CHROMIUM)('the page', () => {
  const web = useWeb();

  test('sends, streams, and keeps the conversation', async () => {
    const { page, problems, foreign, close } = await open(web);
    const { script, goOn } = heldText('Good morning! How are you today?', 30);
    web.scripts = [script, textOf('Fine.')];
    await say(page, 'Hello');
    await page.locator('.assistant .body', { hasText: /^Good/ }).waitFor();
    expect(await page.isVisible('#stop')).toBe(true);
    expect(await page.inputValue('#input')).toBe('');
    goOn();
    await idle(page);
    expect(await answers(page)).toEqual(['Good morning! How are you today?']);
    await page.fill('#input', 'one');
    await page.press('#input', 'Shift+Enter');
    await page.type('#input', 'two');
    await page.press('#input', 'Enter');
    await idle(page);
    expect(web.scripted.asked.at(-1)!.messages).toEqual([
      { role: 'user', content: 'Hello' },
      { role: 'assistant', content: 'Good morning! How are you today?' },
      { role: 'user', content: 'one\ntwo' },
    ]);
    await page.reload();
    await page.waitForSelector('.assistant');
    expect(await answers(page)).toEqual(['Good morning! How are you today?', 'Fine.']);
    expect(await page.title()).toMatch('Hello');
    expect([problems, foreign]).toEqual([[], []]);
    await close();
  });

  test('stops, continues, answers again and goes back', async () => {
    const { page, problems, close } = await open(web);
    web.scripts = [textOf('word '.repeat(400), 20), textOf('and on.'), textOf('Another answer.')];
    await say(page, 'Hello');
    await page.locator('.assistant .body', { hasText: 'word word word word' }).waitFor();
    await page.click('#stop');
    await idle(page);
    await expect.poll(() => web.server.stats.requests).toBe(0);
    const [begun] = await answers(page);
    expect(await page.textContent('.assistant .hint')).toMatch('Stopped');
    await page.click('.assistant >> text=Continue');
    await idle(page);
    expect(web.scripted.asked.at(-1)!.options.continueLast).toBe(true);
    const [whole] = await answers(page);
    expect([whole.startsWith(begun.trim()), whole.endsWith('and on.')]).toEqual([true, true]);
    await page.click('.assistant >> text=Regenerate');
    await idle(page);
    expect(await answers(page)).toEqual(['Another answer.']);
    expect(await page.textContent('.assistant .tools')).toMatch('2/2');
    await page.click('[aria-label="Version before"]');
    expect(await answers(page)).toEqual([whole]);
    expect(problems).toEqual([]);
    await close();
  });

  test('an edited question is a new branch, and the old one stays', async () => {
    const { page, close } = await open(web);
    web.scripts = [textOf('First.'), textOf('Second.'), textOf('Third.')];
    await say(page, 'one');
    await idle(page);
    await say(page, 'two');
    await idle(page);
    await page.locator('.user').first().getByText('Edit').click();
    await page.fill('.editor', 'another one');
    await page.locator('.message button', { hasText: 'Send' }).click();
    await idle(page);
    expect(await answers(page)).toEqual(['Third.']);
    expect(web.scripted.asked.at(-1)!.messages).toEqual([{ role: 'user', content: 'another one' }]);
    await page.locator('[aria-label="Version before"]').click();
    expect(await answers(page)).toEqual(['First.', 'Second.']);
    await page.locator('.assistant').last().getByText('Edit').click();
    await page.fill('.editor', 'Improved.');
    await page.locator('.message button', { hasText: 'Save' }).click();
    expect(await answers(page)).toEqual(['First.', 'Improved.']);
    await close();
  });

  test('markdown is shown, and nothing that a model writes runs or loads', async () => {
    const { page, problems, foreign, close } = await open(web);
    const markdown = [
      '# Title',
      'Some **bold**, *slanted* and `code`, [a link](https://example.com/a_b) and https://example.org.',
      '- one\n  - inner\n- two',
      '1. first\n2. second',
      '> quoted',
      '| a | b |\n|---|---|\n| 1 | 2 |',
      '```js\nconst x = "<b>" && `y`;\n```',
      '<script>window.hacked = 1</script><img src=x onerror="window.hacked = 2"><iframe src="https://evil.example"></iframe>',
      '![picture](https://evil.example/x.png) [bad](javascript:window.hacked=3) [worse](data:text/html,hi) [a](https://x.example" onclick="y)',
      '<a href="javascript:window.hacked=4">click</a> 2 * 3 * 4 and snake_case_name',
    ].join('\n\n');
    web.scripts = [{ pieces: [{ type: 'reasoning', text: '<b>Let me</b> think.' }, ...textOf(markdown).pieces] }];
    await say(page, '<img src=x onerror="window.hacked = 5"> **not bold**');
    await idle(page);
    const body = page.locator('.assistant .body');
    expect(await body.locator('h1').textContent()).toBe('Title');
    expect(await body.locator('strong').allInnerTexts()).toEqual(['bold']);
    expect(await body.locator('em').allInnerTexts()).toEqual(['slanted']);
    expect(await body.locator('ul > li').allInnerTexts()).toEqual(['one\ninner', 'inner', 'two']);
    expect(await body.locator('ol > li').allInnerTexts()).toEqual(['first', 'second']);
    expect(await body.locator('blockquote').textContent()).toBe('quoted');
    expect(await body.locator('td').allInnerTexts()).toEqual(['1', '2']);
    expect(await body.locator('pre code').textContent()).toBe('const x = "<b>" && `y`;');
    const links = await body.locator('a').evaluateAll((nodes) => nodes.map((node) => node.getAttribute('href')));
    expect(links).toEqual([
      'https://example.com/a_b',
      'https://example.org',
      // The addresses in what is no HTML here, and in what would be a picture.
      'https://evil.example',
      'https://evil.example/x.png',
      'https://x.example',
    ]);
    expect(
      await page
        .locator('#messages')
        .evaluate((node) => [...node.querySelectorAll('script,img,iframe,[onerror],[onclick]')].length),
    ).toBe(0);
    expect(await body.textContent()).toMatch('2 * 3 * 4 and snake_case_name');
    expect(await page.locator('.user .body').textContent()).toBe(
      '<img src=x onerror="window.hacked = 5"> **not bold**',
    );
    await page.click('.assistant summary');
    expect(await page.locator('.reasoning').textContent()).toMatch('<b>Let me</b> think.');
    expect(await page.evaluate('window.hacked')).toBeUndefined();
    expect([problems, foreign]).toEqual([[], []]);
    await shot(page, 'markdown');
    // Even a page that is told to cannot load from elsewhere.
    await page.evaluate("document.body.append(Object.assign(new Image(), { src: 'https://evil.example/x.png' }))");
    await expect.poll(() => problems.join()).toMatch(/Content Security Policy/);
    await close();
  });

  test('markdown that is cut anywhere, or made to take long, is shown at once', async () => {
    const { page, problems, close } = await open(web);
    // As a text: the test's bundler would change the import.
    const took = await page.evaluate(String.raw`(async () => {
      const { renderMarkdown } = await import('/page/markdown.js');
      const sample = '# A\n\n**b *c* \x60d\x60** [e](https://f.example) ~~g~~\n\n- h\n\n  i\n1. j\n\n| k |\n|---|\n| l |\n\n> m\n\n\x60\x60\x60\nn\n\x60\x60\x60\n';
      for (let end = 0; end <= sample.length; end++) renderMarkdown(sample.slice(0, end));
      const begun = performance.now();
      const parts = ['*', '**', '_', '\x60', '[', '![', '~~', '>', '- ', '  - ', '|', '\\', '[a](', '<', '#', '*a **b ', '_a*', '|-|\n', '\x60a'];
      for (const text of parts) renderMarkdown(text.repeat(20000));
      for (const text of ['> ', '- ', '* ']) renderMarkdown(text.repeat(500) + 'deep');
      const gap = ' '.repeat(4000);
      for (const text of ['a|b\n' + gap + '-'.repeat(4000) + 'x|', 'a|b\n' + '|-'.repeat(20000) + 'x', '# ' + gap + 'a\u2028b', '# ' + '#'.repeat(20000) + 'x'])
        renderMarkdown(text);
      const titles = ['# a ##', '## a#  ', '#  a b', '# #'].map((text) => renderMarkdown(text).textContent);
      if (titles.join() !== 'a,a#,a b,') throw new Error(titles.join());
      renderMarkdown(Array.from({ length: 2000 }, (_, i) => ' '.repeat(i) + '- x').join('\n'));
      return performance.now() - begun;
    })()`);
    expect(took).toBeLessThan(8000);
    expect(problems).toEqual([]);
    await close();
  });

  test('the end is followed only while the reader is there', async () => {
    const { page, close } = await open(web, { height: 500 });
    web.scripts = [textOf('line\n\n'.repeat(100)), textOf('more\n\n'.repeat(150), 5)];
    await say(page, 'Hello');
    await idle(page);
    const distance = () => page.$eval('#scroller', (node) => node.scrollHeight - node.scrollTop - node.clientHeight);
    await expect.poll(distance).toBeLessThan(40);
    await say(page, 'Again');
    await page.locator('.assistant').nth(1).filter({ hasText: 'more' }).waitFor();
    await page.$eval('#scroller', (node) => node.scrollTo(0, 300));
    await page.waitForSelector('#down:visible');
    await idle(page);
    expect(await page.$eval('#scroller', (node) => node.scrollTop)).toBe(300);
    await page.click('#down');
    expect(await distance()).toBeLessThan(40);
    await close();
  });

  test('settings go with the request, and stay', async () => {
    const { page, close } = await open(web);
    await page.click('#open-settings');
    await page.fill('[name=system]', 'Be brief.');
    await page.fill('[name=temperature]', '0.2');
    await page.fill('[name=maxTokens]', '50');
    await page.fill('[name=seed]', '7');
    await page.uncheck('[name=thinking]');
    await shot(page, 'settings');
    await page.click('#settings [type=submit]');
    await page.reload();
    await hasModels(page);
    await say(page, 'Hello');
    await idle(page);
    const { messages, options } = web.scripted.asked.at(-1)!;
    expect(messages[0]).toEqual({ role: 'system', content: 'Be brief.' });
    expect(options).toMatchObject({ temperature: 0.2, maxTokens: 50, seed: 7, template: { enable_thinking: false } });
    await close();
  });

  test('several conversations: new, renamed, deleted, exported and imported', async () => {
    const { page, problems, close } = await open(web);
    await say(page, 'About foxes');
    await idle(page);
    await page.click('#new');
    await say(page, 'About kings');
    await idle(page);
    expect(await titles(page)).toEqual(['About kings', 'About foxes']);
    await page.click('#conversations >> text=About foxes');
    expect(await page.locator('.user .body').allInnerTexts()).toEqual(['About foxes']);
    const [download] = await Promise.all([page.waitForEvent('download'), page.click('#export')]);
    const file = await download.path();
    await page.locator('#conversations li', { hasText: 'About foxes' }).getByLabel('Delete').click();
    expect(await titles(page)).toEqual(['About kings']);
    await page.setInputFiles('#file', file);
    await expect.poll(async () => (await titles(page)).sort()).toEqual(['About foxes', 'About kings', 'About kings']);
    for (const bad of [
      'not json',
      '{}',
      '{"conversations":[{"id":1}]}',
      '{"conversations":[{"id":"a","messages":{"b":{"id":"b","role":"user","content":"x","parent":"c"}}}]}',
    ]) {
      await importText(page, bad);
      await page.waitForSelector('#notice:visible');
    }
    // What other programs left in the browser under our names does no harm.
    await page.evaluate(`localStorage.setItem('candle.conversation.x', '{"id":"x","messages":{"a":null}}')`);
    await page.reload();
    await page.waitForSelector('#conversations .title');
    expect(await titles(page)).toHaveLength(3);
    expect(problems).toEqual([]);
    await close();
  });

  test('errors are said where they happen, and can be tried again', async () => {
    const { page, close } = await open(web);
    web.scripts = [{ ...textOf('Half an '), error: new Error('x') }, textOf('Whole.')];
    await say(page, 'Hello');
    await page.waitForSelector('.error');
    expect(await page.textContent('.error')).toMatch('The server failed');
    expect(await answers(page)).toEqual(['Half an']);
    await page.click('.assistant >> text=Regenerate');
    await idle(page);
    expect(await answers(page)).toEqual(['Whole.']);
    await close();
  });

  test('a server with a key: the page says so, and works with it', async () => {
    const locked = await serve({ models: { locked: web.scripted.model }, port: 0, apiKey: 'secret' });
    const context = await web.browser.newContext();
    const page = await context.newPage();
    await page.goto(locked.url);
    await page.waitForSelector('#notice:visible');
    expect(await page.textContent('#notice')).toMatch('key');
    await page.click('#open-settings');
    await page.fill('[name=key]', 'secret');
    await page.click('#settings [type=submit]');
    await hasModels(page);
    await say(page, 'Hello');
    await idle(page);
    expect(await answers(page)).toHaveLength(1);
    await context.close();
    await locked.close();
  });

  test('a screen of 360 pixels', async () => {
    const { page, close } = await open(web, { width: 360, height: 640 });
    web.scripts = [
      textOf(
        `A story of ${'averylongwordwithoutanyspaces'.repeat(10)}\n\n\`\`\`js\nconst line = ${'"long" + '.repeat(20)}1;\n\`\`\`\n\n| ${'column | '.repeat(8)}\n|${'---|'.repeat(8)}\n| ${'value | '.repeat(8)}`,
      ),
    ];
    await say(page, 'Tell me something that is wider than the screen');
    await idle(page);
    const wide = await page.evaluate<number[]>(
      "[document.documentElement, document.querySelector('#scroller')].map((node) => node.scrollWidth)",
    );
    expect(Math.max(...wide)).toBeLessThanOrEqual(360);
    for (const selector of ['#input', '#send', '#model', '#open-settings', '#show']) {
      const box = (await page.locator(selector).boundingBox())!;
      expect(box.x >= 0 && box.x + box.width <= 360 && box.y + box.height <= 640).toBe(true);
    }
    await shot(page, 'small');
    expect(await page.locator('#new').isVisible()).toBe(false);
    await page.click('#show');
    await page.click('#conversations .title');
    await page.click('#show');
    await page.click('#new');
    expect(await page.locator('#new').isVisible()).toBe(false);
    await close();
  });
});
