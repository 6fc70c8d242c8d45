/** The page to chat in: files of this package, sent as they are. */
import { readFileSync } from 'node:fs';

const TYPES = {
  html: 'text/html; charset=utf-8',
  css: 'text/css; charset=utf-8',
  js: 'text/javascript; charset=utf-8',
  svg: 'image/svg+xml',
} as const;

/** By their paths on the server. */
const FILES: Readonly<Record<string, string>> = {
  '/': 'index.html',
  '/page/style.css': 'style.css',
  '/page/icon.svg': 'icon.svg',
  '/page/main.js': 'main.js',
  '/page/chat.js': 'chat.js',
  '/page/markdown.js': 'markdown.js',
  '/page/store.js': 'store.js',
  '/page/view.js': 'view.js',
};

/** Nothing from elsewhere, nothing inline, no frame around it. */
const HEADERS = {
  'content-security-policy':
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
  'cache-control': 'no-cache',
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-resource-policy': 'same-origin',
  'referrer-policy': 'no-referrer',
};

const contents = new Map<string, string>();

/** The file that is sent for a path, if there is one. */
export function pageFile(path: string): (() => Response) | undefined {
  const name = Object.hasOwn(FILES, path) ? FILES[path] : undefined;
  if (name === undefined) return undefined;
  return () => {
    let content = contents.get(name);
    if (content === undefined) {
      content = readFileSync(new URL(`../page/${name}`, import.meta.url), 'utf8');
      contents.set(name, content);
    }
    const type = TYPES[name.slice(name.lastIndexOf('.') + 1) as keyof typeof TYPES];
    return new Response(content, { headers: { ...HEADERS, 'content-type': type } });
  };
}
