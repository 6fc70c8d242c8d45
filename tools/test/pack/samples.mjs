// The projects of deploy/ on packed packages: what a function of Lambda answers, the archive of an application of Electron, and a site of Next,
// built and started from what its build copied.
import { spawn } from 'node:child_process';
import { cpSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { root } from '../../setup/steps.mjs';
import { must, node, report, work } from './project.mjs';

const REQUEST = { model: 'model', prompt: 'Once upon a time', max_tokens: 8, temperature: 0 };
const PORT = 34_871;
/** What electron-builder packs with. */
const ASAR = '@electron/asar@3.4.1';

/** @param project with the packages and the model */
export async function checkSamples(project) {
  checkLambda(project);
  await checkElectron(project);
  await checkNext(project);
}

function checkLambda(project) {
  cpSync(join(root, 'deploy/lambda/index.mjs'), join(project, 'lambda.mjs'));
  const event = {
    version: '2.0',
    rawPath: '/v1/completions',
    rawQueryString: '',
    headers: { 'content-type': 'application/json', host: 'localhost' },
    requestContext: { http: { method: 'POST', path: '/v1/completions' }, domainName: 'localhost' },
    body: JSON.stringify(REQUEST),
    isBase64Encoded: false,
  };
  const program = `process.env.MODEL = './model.gguf';
    const { handler } = await import('./lambda.mjs');
    const answer = await handler(${JSON.stringify(event)}, {});
    console.log(answer.statusCode, JSON.parse(answer.body).choices[0].text.length > 0);
    process.exit();`;
  const { stdout, stderr } = node(project, program);
  report('deploy/lambda answers', stdout.trim() === '200 true' || `${stdout}\n${stderr}`);
}

// Electron itself is not on npm (it downloads), so this is what can be seen without it: the archive, packed as electron-builder
// packs it (`asarUnpack` names paths in the project), and what lies beside it, which the system loads and which is read as plain
// files: the addon, loaded by this Node, and the kernels.
async function checkElectron(project) {
  const tools = join(work, 'asar');
  mkdirSync(tools);
  must('npm', ['install', '--prefix', tools, '--no-audit', '--no-fund', '--silent', ASAR], work);
  const asar = createRequire(join(tools, 'x.js'))('@electron/asar');
  const app = join(work, 'electron');
  const sample = join(root, 'deploy/electron');
  cpSync(sample, app, { recursive: true });
  cpSync(join(project, 'node_modules'), join(app, 'node_modules'), { recursive: true });
  const { main, build } = JSON.parse(readFileSync(join(sample, 'package.json'), 'utf8'));
  const unpackDir = `{${build.asarUnpack.map((pattern) => pattern.replace(/\/\*\*$/, '')).join(',')}}`;
  const archive = join(work, 'resources', 'app.asar');
  await asar.createPackageWithOptions(app, archive, { unpackDir });
  const files = asar.listPackage(archive).map((file) => file.slice(1));
  const isUnpacked = (file) => asar.statFile(archive, file).unpacked === true;
  // What no archive can hold: code that the system loads, and the kernels with their index.
  const beside = files.filter((file) =>
    /\.node$|^node_modules\/@x\/kernels-[^/]+\/(index\.json|objects\/.+\/.+)$/.test(file),
  );
  const missed = beside.filter((file) => !isUnpacked(file));
  report('deploy/electron unpacks addon and kernels', (beside.length > 20 && missed.length === 0) || `not: ${missed}`);
  const inside = [main, 'node_modules/@x/core/dist/index.js', 'node_modules/@x/candle/dist/index.js'];
  const out = inside.filter((file) => !files.includes(file) || isUnpacked(file));
  report('deploy/electron keeps the rest in the archive', out.length === 0 || `not: ${out}`);
  const unpacked = `${archive}.unpacked/node_modules/@x`;
  report(
    'deploy/electron: the unpacked addon loads',
    node(
      work,
      `import { createRequire } from 'node:module';
      import { createHash } from 'node:crypto';
      import { readFileSync } from 'node:fs';
      import { brotliDecompressSync } from 'node:zlib';
      const addon = createRequire(import.meta.url)(${JSON.stringify(join(unpacked, `hip-linux-${process.arch}-gnu`))});
      if (typeof addon.open !== 'function') throw new Error(Object.keys(addon).join());
      const kernels = ${JSON.stringify(join(unpacked, `kernels-host-${process.arch}`))};
      const { targets } = JSON.parse(readFileSync(kernels + '/index.json', 'utf8'));
      for (const files of Object.values(targets))
        for (const { path, sha256 } of Object.values(files)) {
          const bytes = brotliDecompressSync(readFileSync(kernels + '/' + path));
          if (createHash('sha256').update(bytes).digest('hex') !== sha256) throw new Error(path);
        }`,
    ),
  );
}

async function checkNext(project) {
  for (const name of ['next.config.mjs', 'app'])
    cpSync(join(root, 'deploy/next', name), join(project, name), { recursive: true });
  const { dependencies } = JSON.parse(readFileSync(join(root, 'deploy/next/package.json'), 'utf8'));
  const wanted = Object.entries(dependencies).filter(([name]) => !name.startsWith('@x/'));
  const packages = wanted.map(([name, range]) => `${name}@${range}`);
  must('npm', ['install', '--no-audit', '--no-fund', '--silent', '--ignore-scripts', ...packages], project);
  writeFileSync(join(project, 'next-env.d.ts'), '');
  must(process.execPath, ['node_modules/next/dist/bin/next', 'build'], project, {
    ...process.env,
    NEXT_TELEMETRY_DISABLED: '1',
  });
  const site = spawn(process.execPath, [join(project, '.next/standalone/server.js')], {
    env: { ...process.env, PORT: String(PORT), HOSTNAME: '127.0.0.1', MODEL: join(project, 'model.gguf') },
    stdio: ['ignore', 'ignore', 'inherit'],
  });
  try {
    let answer;
    for (let tries = 0; tries < 100 && !answer; tries++) {
      await sleep(200);
      const init = { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(REQUEST) };
      answer = await fetch(`http://127.0.0.1:${PORT}/v1/completions`, init).catch(() => undefined);
    }
    const body = await answer?.text();
    report(
      'deploy/next answers',
      (answer?.status === 200 && JSON.parse(body).choices[0].text.length > 0) || String(body),
    );
  } finally {
    site.kill('SIGKILL');
  }
}
