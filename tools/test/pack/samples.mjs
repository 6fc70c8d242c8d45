// The projects of deploy/ on packed packages: what a function of Lambda answers, what Electron is to unpack, and a site of Next,
// built and started from what its build copied.
import { spawn } from 'node:child_process';
import { cpSync, existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { root } from '../../setup/steps.mjs';
import { must, node, report } from './project.mjs';

const REQUEST = { model: 'model', prompt: 'Once upon a time', max_tokens: 8, temperature: 0 };
const PORT = 34_871;

/** @param project with the packages and the model */
export async function checkSamples(project) {
  checkLambda(project);
  checkElectron(project);
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

// What the system loads and what is read as plain files is outside of the archive: the patterns of electron-builder name folders.
function checkElectron(project) {
  const { asarUnpack } = JSON.parse(readFileSync(join(root, 'deploy/electron/package.json'), 'utf8')).build;
  const unpacked = asarUnpack.map((pattern) => new RegExp(`^${pattern.replace('/**', '').replace('*', '[^/]*')}$`));
  const scope = join(project, 'node_modules/@x');
  const compiled = readdirSync(scope).filter((name) =>
    ['hip.node', 'index.json'].some((file) => existsSync(join(scope, name, file))),
  );
  const missed = compiled.filter((name) => !unpacked.some((pattern) => pattern.test(`node_modules/@x/${name}`)));
  report('deploy/electron unpacks addon and kernels', (compiled.length > 1 && missed.length === 0) || `not: ${missed}`);
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
