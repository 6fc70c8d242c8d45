/**
 * The documents that are pages, and where each is: files stay where they are in the repository, so that their links work
 * there too, and those links are turned into the site's when it is built.
 */
import { targetOf } from './links';

/** A file's page, or undefined where it is none. docs/guide/chat.md: guide/chat.md */
export function pageOf(file: string): string | undefined {
  const rules: [RegExp, string][] = [
    [/^docs\/(index\.md|[\w-]+\.md|guide\/[\w-]+\.md)$/, '$1'],
    [/^packages\/(?!testing\/)([\w-]+)\/README\.md$/, 'packages/$1.md'],
    [/^(examples|models)\/([\w-]+)\/README\.md$/, '$1/$2.md'],
    [/^CONTRIBUTING\.md$/, 'contributing.md'],
  ];
  const rule = rules.find(([pattern]) => pattern.test(file));
  return rule && file.replace(...rule);
}

/** Where a link of a document leads on the site; null for what is no part of it. Links to elsewhere stay. */
export function siteLink(document: string, link: string): string | null {
  const target = targetOf(document, link);
  if (!target) return link;
  const page = pageOf(target.path);
  if (page === undefined) return null;
  return `/${page.replace(/(index)?\.md$/, '')}${target.anchor && `#${target.anchor}`}`;
}

export interface Section {
  text: string;
  collapsed?: boolean;
  items: { text: string; link: string }[];
}

const entries = (pages: Record<string, string>) => Object.entries(pages).map(([link, text]) => ({ text, link }));

/** The sidebar. A test compares it with the files. */
export const SECTIONS: Section[] = [
  {
    text: 'Begin',
    items: entries({
      '/guide/install': 'Install',
      '/guide/first-program': 'First program',
      '/guide/chat': 'Chat',
      '/guide/serve': 'Serve',
      '/models': 'Models',
    }),
  },
  {
    text: 'Compute',
    items: entries({
      '/guide/tensors': 'Tensors beside PyTorch and candle',
      '/guide/training': 'Training',
      '/guide/quantisation': 'Quantisation',
      '/guide/custom-kernels': 'Custom kernels',
      '/guide/memory': 'Memory',
    }),
  },
  {
    text: 'Run',
    items: entries({
      '/guide/deploying': 'Bundling and deploying',
      '/replicas-and-batches': 'Replicas and offline batches',
      '/guide/troubleshooting-rocm': 'Troubleshooting ROCm',
      '/guide/faq': 'Questions',
      '/several-devices': 'Several devices',
      '/switches': 'Switches',
    }),
  },
  {
    text: 'Figures',
    items: entries({
      '/benchmarks': 'Measurements',
      '/how-we-measure': 'How we measure',
      '/accuracy': 'Accuracy beside transformers',
      '/parity': 'Parity with candle',
      '/api-parity': 'Names beside candle and PyTorch',
    }),
  },
  {
    text: 'Inside',
    items: entries({
      '/architecture': 'Architecture',
      '/kernels': 'Kernels',
      '/guide/adding-a-kernel': 'Adding a kernel',
      '/guide/adding-a-model': 'Adding a model',
      '/guide/adding-a-device': 'Adding a device',
      '/contributing': 'Contributing',
    }),
  },
  {
    text: 'Packages',
    collapsed: true,
    items: entries({
      '/packages/candle': '@x/candle',
      '/packages/core': '@x/core',
      '/packages/nn': '@x/nn',
      '/packages/quantized': '@x/quantized',
      '/packages/transformers': '@x/transformers',
      '/packages/engine': '@x/engine',
      '/packages/grammar': '@x/grammar',
      '/packages/hub': '@x/hub',
      '/packages/server': '@x/server',
      '/packages/rocm-backend': '@x/rocm-backend',
      '/packages/kernels': '@x/kernels',
      '/packages/hip': '@x/hip',
    }),
  },
  {
    text: 'Examples and models',
    collapsed: true,
    items: entries({
      '/examples/train-char-lm': 'A small transformer',
      '/examples/mandelbrot': 'Mandelbrot',
      '/models/tiny-tales': 'tiny-tales',
      '/models/tiny': 'Tiny models',
      '/models/encoders': 'Tiny encoders',
    }),
  },
];
