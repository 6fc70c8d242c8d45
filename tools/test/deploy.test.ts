// What is in deploy/, and the manifests of the documents: read, rendered, and held against schemas and the commands' options.
import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Ajv } from 'ajv';
import { afterAll, describe, expect, it, test } from 'vitest';
import { batchCommand } from '../../packages/candle/src/commands/batch';
import { serveCommand } from '../../packages/candle/src/commands/serve';
import { GUIDES, ROOT } from './blocks';
import { documentsOf, type Manifest, problemsOf } from './manifests';

const DEPLOY = join(ROOT, 'deploy');
/** Of tools/setup/helm.mjs. */
const HELM = join(ROOT, '.cache/tools/helm/helm');
const CHART = join(DEPLOY, 'helm/candle');
const read = (path: string) => readFileSync(path, 'utf8');
const yamlFiles = readdirSync(DEPLOY, { recursive: true, encoding: 'utf8' }).filter(
  (path) => /\.ya?ml$/.test(path) && !path.includes('templates') && !path.includes('node_modules'),
);

/** The options that a command line has and the command has not. */
function unknownOptions([name, ...words]: readonly string[]): string[] {
  const command = { serve: serveCommand, batch: batchCommand }[name];
  if (!command) return [`candle ${name}`];
  const known = command().options.flatMap(({ long }) => (long ? [long] : []));
  return words.filter((word) => word.startsWith('--') && !known.includes(word.split('=')[0]));
}

test.each(yamlFiles)('%s is YAML without warnings', (path) => {
  expect(documentsOf(read(join(DEPLOY, path))).length).toBeGreaterThan(0);
});

test('mistakes in YAML are seen', () => {
  expect(() => documentsOf('a: 1\na: 2\n')).toThrow(/unique/);
  expect(() => documentsOf('a: [1\n')).toThrow();
  expect(() => documentsOf('a: *b\n')).toThrow();
});

describe('the compose file', () => {
  const [{ services, volumes, secrets }] = documentsOf(read(join(DEPLOY, 'compose.yaml')));
  it.each(Object.keys(services))('%s uses what is there', (name) => {
    const { command, depends_on = [], ...service } = services[name];
    for (const other of depends_on) expect(Object.keys(services)).toContain(other);
    for (const secret of service.secrets ?? []) expect(Object.keys(secrets)).toContain(secret);
    for (const volume of service.volumes ?? []) {
      const [from] = volume.split(':');
      if (from.startsWith('.')) expect(existsSync(join(DEPLOY, from)), from).toBe(true);
      else expect(Object.keys(volumes)).toContain(from);
    }
    if (service.build) expect(existsSync(join(DEPLOY, service.build.context, 'Dockerfile'))).toBe(true);
    if (service.image.startsWith('candle:')) expect(unknownOptions(command)).toEqual([]);
  });
  it('has a target of the Dockerfile for each device', () => {
    const stages = [...read(join(DEPLOY, 'docker/Dockerfile')).matchAll(/^FROM .* AS (\w+)/gim)].map(
      ([, name]) => name,
    );
    expect(stages).toEqual(expect.arrayContaining(['cpu', 'rocm', 'cuda']));
  });
});

describe('the manifests of the documents', () => {
  const documents = [...new Set([...GUIDES, ...readdirSync(join(ROOT, 'docs')).map((name) => `docs/${name}`)])];
  const blocks = documents
    .filter((path) => path.endsWith('.md'))
    .flatMap((path) =>
      [...read(join(ROOT, path)).matchAll(/^```ya?ml\n([\s\S]*?)^```$/gm)].map(([, text]) => [path, text]),
    );
  it('are there', () => expect(blocks.length).toBeGreaterThanOrEqual(2));
  it.each(blocks)('of %s are what Kubernetes takes', (_, text) => expect(problemsOf(documentsOf(text))).toEqual([]));
});

describe("the chart's values", () => {
  const [values] = documentsOf(read(join(CHART, 'values.yaml')));
  const schema = JSON.parse(read(join(CHART, 'values.schema.json')));
  const templates = readdirSync(join(CHART, 'templates'))
    .map((name) => read(join(CHART, 'templates', name)))
    .join('\n');
  const used = [...new Set([...templates.matchAll(/\.Values((?:\.\w+)+)/g)].map(([, path]) => path.slice(1)))];

  it('meet their schema, which knows all of them and no other', () => {
    const validate = new Ajv({ strict: false }).compile(schema);
    expect(validate(values), JSON.stringify(validate.errors)).toBe(true);
    const { global: _, ...known } = schema.properties;
    expect(Object.keys(known).sort()).toEqual(Object.keys(values).sort());
  });

  it.each(used)('have %s, which templates ask for', (path) => {
    const found = path.split('.').reduce((at, key) => (Object.hasOwn(at ?? {}, key) ? at[key] : undefined), values);
    expect(found).toBeDefined();
  });

  it('are all asked for', () => {
    const asked = (path: string) =>
      used.some((one) => one === path || path.startsWith(`${one}.`) || one.startsWith(`${path}.`));
    const leaves = (value: Manifest, path: string): string[] =>
      typeof value === 'object' && value !== null && !Array.isArray(value) && Object.keys(value).length > 0
        ? Object.entries(value).flatMap(([key, item]) => leaves(item, path ? `${path}.${key}` : key))
        : [path];
    expect(leaves(values, '').filter((path) => !asked(path))).toEqual([]);
  });

  it('go through helpers that are there', () => {
    const defined = [...templates.matchAll(/define "([^"]+)"/g)].map(([, name]) => name);
    for (const [, name] of templates.matchAll(/include "([^"]+)"/g)) expect(defined).toContain(name);
    for (const name of defined) expect(templates).toContain(`include "${name}"`);
  });
});

/** Settings that take every branch of the templates. */
const SETTINGS: Record<string, Record<string, string>> = {
  'a key': { 'auth.existingSecret': 'keys' },
  'without a key': { 'auth.allowOpenNetwork': 'true' },
  'AMD, scaled by load': {
    'auth.existingSecret': 'keys',
    device: 'rocm',
    'autoscaling.enabled': 'true',
    'serviceMonitor.enabled': 'true',
    'serviceMonitor.labels.release': 'prometheus',
    'supplementalGroups[0]': '109',
  },
  'NVIDIA, one volume for all': {
    'auth.existingSecret': 'keys',
    device: 'cuda',
    gpus: '2',
    'cache.mode': 'shared',
    'cache.storageClass': 'nfs',
    'autoscaling.enabled': 'true',
    'autoscaling.sequencesPerReplica': '12',
    'serve.extraArgs[0]': '--tensor-parallel=auto',
  },
  'a volume that is there': { 'auth.existingSecret': 'keys', 'cache.mode': 'shared', 'cache.existingClaim': 'models' },
  'no volume, and all else': {
    'auth.existingSecret': 'keys',
    'cache.mode': 'none',
    'image.tag': 'x',
    'hub.existingSecret': 'hub',
    'hub.offline': 'true',
    'embedding[0].name': 'e',
    'embedding[0].source': 'hf:org/e',
    'serve.context': '8192',
    'serve.maxSequences': '1500000',
    'serve.log': 'false',
    'serve.allowedHosts[0]': 'models.example',
    'imagePullSecrets[0].name': 'registry',
    'podAnnotations.a': 'b',
    'podLabels.c': 'd',
    'service.annotations.e': 'f',
    'nodeSelector.gpu': 'none',
    'tolerations[0].key': 'gpu',
    'tolerations[0].operator': 'Exists',
    'affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].topologyKey': 'kubernetes.io/hostname',
    'topologySpreadConstraints[0].maxSkew': '1',
    'topologySpreadConstraints[0].topologyKey': 'zone',
    'topologySpreadConstraints[0].whenUnsatisfiable': 'ScheduleAnyway',
    'extraEnv[0].name': 'X_DEBUG',
    'extraEnv[0].value': 'yes',
    'extraVolumes[0].name': 'more',
    'extraVolumes[0].emptyDir.medium': 'Memory',
    'extraVolumeMounts[0].name': 'more',
    'extraVolumeMounts[0].mountPath': '/more',
    'podDisruptionBudget.enabled': 'false',
  },
};

describe.skipIf(!existsSync(HELM))('the chart as Helm renders it', () => {
  const home = mkdtempSync(join(tmpdir(), 'candle-helm-'));
  afterAll(() => rmSync(home, { recursive: true, force: true }));
  const helm = (command: string[], settings: Record<string, string>) => {
    const flags = Object.entries(settings).flatMap(([name, value]) => ['--set', `${name}=${value}`]);
    const env = { ...process.env, HELM_CACHE_HOME: home, HELM_CONFIG_HOME: home, HELM_DATA_HOME: home };
    return spawnSync(HELM, [...command, CHART, ...flags], { encoding: 'utf8', env });
  };

  describe.each(Object.entries(SETTINGS))('%s', (_, settings) => {
    const { status, stdout, stderr } = helm(['template', 'tales', '--namespace', 'llm'], settings);
    const manifests = status === 0 ? documentsOf(stdout) : [];
    const workload = manifests.find(({ kind }) => kind === 'Deployment' || kind === 'StatefulSet');

    it('is what Kubernetes takes, and what Helm finds nothing wrong with', () => {
      expect(status, stderr).toBe(0);
      expect(problemsOf(manifests)).toEqual([]);
      const linted = helm(['lint', '--strict'], settings);
      expect(linted.status, linted.stdout + linted.stderr).toBe(0);
    });

    it('starts the server with options that it has, and what the settings say', () => {
      const [{ args, resources, env, image }] = workload.spec.template.spec.containers;
      expect(unknownOptions(args)).toEqual([]);
      for (const one of args) expect(typeof one).toBe('string');
      for (const { value } of env) expect(['string', 'undefined']).toContain(typeof value);
      const { device = 'cpu', gpus = '1' } = settings;
      expect(args).toContain(device === 'cpu' ? '--device=cpu' : `--device=${device}:0`);
      const gpu = { cpu: undefined, rocm: 'amd.com/gpu', cuda: 'nvidia.com/gpu' }[device];
      expect(resources.limits).toEqual({ memory: '16Gi', ...(gpu && { [gpu]: Number(gpus) }) });
      expect(image).toBe(`candle:${settings['image.tag'] ?? `0.1.0-${device}`}`);
      expect(args.includes('--allow-open-network')).toBe(settings['auth.existingSecret'] === undefined);
      expect(args).toContain(`--max-sequences=${settings['serve.maxSequences'] ?? 32}`);
      expect(workload.kind).toBe((settings['cache.mode'] ?? 'replica') === 'replica' ? 'StatefulSet' : 'Deployment');
    });
  });

  it.each([
    [{}, /there is no key/],
    [{ 'auth.existingSecret': 'keys', models: 'null' }, /models/],
    [{ 'auth.existingSecret': 'keys', device: 'tpu' }, /device/],
    [{ 'auth.existingSecret': 'keys', 'serve.maxSequence': '3' }, /maxSequence/],
    [{ 'auth.existingSecret': 'keys', 'models[0].name': 'a=b', 'models[0].source': 'x' }, /name/],
  ])('%j is refused', (settings, message) => {
    const { status, stdout, stderr } = helm(['template', 'tales'], settings as Record<string, string>);
    expect([status, stdout]).toEqual([1, '']);
    expect(stderr).toMatch(message);
  });

  it('scales by what a replica computes at once where nothing is said', () => {
    const { stdout } = helm(['template', 'tales'], SETTINGS['AMD, scaled by load']);
    const scaled = documentsOf(stdout).find(({ kind }) => kind === 'ScaledObject');
    // Four fifths of 32.
    expect(scaled.spec.triggers[0].metadata.threshold).toBe('25');
  });
});

describe('the checks', () => {
  const service = {
    apiVersion: 'v1',
    kind: 'Service',
    metadata: { name: 's' },
    spec: { selector: { a: 'b' }, ports: [{ port: 80, targetPort: 'http' }] },
  };
  const pod = {
    metadata: { labels: { a: 'b' } },
    spec: { containers: [{ name: 'c', ports: [{ name: 'http', containerPort: 8080 }] }] },
  };
  const deployment = {
    apiVersion: 'apps/v1',
    kind: 'Deployment',
    metadata: { name: 'd' },
    spec: { selector: { matchLabels: { a: 'b' } }, template: pod },
  };
  it.each<[string, Manifest[], RegExp]>([
    ['nothing', [service, deployment], /^$/],
    ['a field that is missing', [{ ...deployment, spec: { template: pod } }], /selector/],
    [
      'a field that there is not',
      [{ ...deployment, spec: { ...deployment.spec, replica: 2 } }],
      /"replica"' does not exist/,
    ],
    ['a field of another type', [{ ...deployment, spec: { ...deployment.spec, replicas: '2' } }], /replicas|number/],
    ['a kind that is not known', [{ ...service, kind: 'Servce' }], /v1 Servce is not known/],
    [
      'a port that no container has',
      [{ ...service, spec: { ...service.spec, ports: [{ port: 80, targetPort: 'web' }] } }, deployment],
      /leads to the port web/,
    ],
    [
      'a service of nothing',
      [{ ...service, spec: { ...service.spec, selector: { a: 'c' } } }, deployment],
      /selects no pods/,
    ],
  ])('see %s', (_, manifests, message) => {
    expect(problemsOf(manifests).join('\n')).toMatch(message);
  });
  it('see options that a command has not', () => {
    expect(unknownOptions(['serve', 'm=hf:a/b', '--hosts=0', '--port=1'])).toEqual(['--hosts=0']);
  });
});
