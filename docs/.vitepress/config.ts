/** The documentation site. `tsx docs/build.ts` builds it, with the reference of all packages beside it. */
import { join, relative } from 'node:path';
import { defineConfig } from 'vitepress';
import { anchorOf, ROOT } from '../site/links';
import { pageOf, SECTIONS, siteLink } from '../site/pages';

export default defineConfig({
  title: 'candle for TypeScript',
  description: 'Tensors, quantized models and language models for Node.js, on AMD GPUs, NVIDIA GPUs and CPUs',
  srcDir: '..',
  srcExclude: [
    'README.md',
    'tools/**',
    'prebuilt/**',
    'packages/testing/**',
    'packages/*/*/**',
    'models/*/!(README).md',
  ],
  rewrites: (file) => pageOf(file) ?? file,
  outDir: '../.cache/site/dist',
  cacheDir: '../.cache/site/vite',
  cleanUrls: true,
  lastUpdated: false,
  head: [
    [
      'link',
      {
        rel: 'icon',
        href: 'data:image/svg+xml,<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"><rect x="6" y="6" width="4" height="10" fill="%23b45309"/><path d="M8 0c2 3 2 5 0 6-2-1-2-3 0-6" fill="%23f59e0b"/></svg>',
      },
    ],
  ],
  vite: {
    // What the front page shows by its name.
    publicDir: join(ROOT, 'docs/images'),
    build: { target: 'es2022' },
    // Of a search service, which the theme imports and this site does not use; pnpm-workspace.yaml leaves it out.
    resolve: { alias: { '@docsearch/css': join(ROOT, 'docs/.vitepress/theme/style.css') } },
  },
  markdown: {
    anchor: { slugify: anchorOf },
    config(md) {
      md.core.ruler.push('site-links', ({ tokens, env }) => {
        const document = relative(ROOT, env.realPath ?? env.path);
        for (const token of tokens.flatMap(({ children }) => children ?? [])) {
          const href = token.type === 'link_open' ? token.attrGet('href') : null;
          if (href === null || href.startsWith('#')) continue;
          const link = siteLink(document, href);
          if (link === null) throw new Error(`${document}: ${href} is no page of the site; see docs/site/pages.ts.`);
          token.attrSet('href', link);
        }
      });
    },
  },
  themeConfig: {
    nav: [
      { text: 'Guide', link: '/guide/install', activeMatch: '/guide/' },
      { text: 'Measurements', link: '/benchmarks' },
      // Made by typedoc after vitepress, which knows nothing of it.
      { text: 'Reference', link: '/api/index.html', target: '_self' },
    ],
    sidebar: SECTIONS,
    outline: [2, 3],
    search: { provider: 'local' },
    footer: { message: 'Apache-2.0' },
  },
});
