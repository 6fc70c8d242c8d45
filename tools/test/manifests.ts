/**
 * Manifests as Kubernetes and its operators would take them: by the schemas of their kinds, by the types of these for fields that
 * there are not, and by what refers to what.
 */
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { ScaledObject } from '@kubernetes-models/keda/keda.sh/v1alpha1/ScaledObject';
import { ServiceMonitor } from '@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1/ServiceMonitor';
import { Deployment } from 'kubernetes-models/apps/v1/Deployment';
import { StatefulSet } from 'kubernetes-models/apps/v1/StatefulSet';
import { Job } from 'kubernetes-models/batch/v1/Job';
import { PodDisruptionBudget } from 'kubernetes-models/policy/v1/PodDisruptionBudget';
import { PersistentVolumeClaim } from 'kubernetes-models/v1/PersistentVolumeClaim';
import { Service } from 'kubernetes-models/v1/Service';
import ts from 'typescript';
import { parseAllDocuments } from 'yaml';
import { ROOT } from './blocks';

// biome-ignore lint/suspicious/noExplicitAny: what a file holds is what a check says
export type Manifest = any;

/** By apiVersion and kind: the model, and the module that declares its type. */
const KINDS: Readonly<Record<string, [new (data: never) => { validate(): void }, module: string]>> = {
  'apps/v1 Deployment': [Deployment, 'kubernetes-models/apps/v1/Deployment'],
  'apps/v1 StatefulSet': [StatefulSet, 'kubernetes-models/apps/v1/StatefulSet'],
  'batch/v1 Job': [Job, 'kubernetes-models/batch/v1/Job'],
  'keda.sh/v1alpha1 ScaledObject': [ScaledObject, '@kubernetes-models/keda/keda.sh/v1alpha1/ScaledObject'],
  'monitoring.coreos.com/v1 ServiceMonitor': [
    ServiceMonitor,
    '@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1/ServiceMonitor',
  ],
  'policy/v1 PodDisruptionBudget': [PodDisruptionBudget, 'kubernetes-models/policy/v1/PodDisruptionBudget'],
  'v1 PersistentVolumeClaim': [PersistentVolumeClaim, 'kubernetes-models/v1/PersistentVolumeClaim'],
  'v1 Service': [Service, 'kubernetes-models/v1/Service'],
};

/** The documents of a text. @throws Error with the place: for warnings and keys that are there twice, too */
export function documentsOf(text: string): Manifest[] {
  return parseAllDocuments(text, { uniqueKeys: true, merge: true, strict: true }).flatMap((document) => {
    const problem = [...document.errors, ...document.warnings].at(0);
    if (problem) throw new Error(problem.message);
    const value: unknown = document.toJS();
    return value === null ? [] : [value];
  });
}

/** What is wrong with manifests that are applied together, a line each. */
export function problemsOf(manifests: readonly Manifest[]): string[] {
  return [...manifests.flatMap(schemaProblems), ...unknownFields(manifests), ...looseEnds(manifests)];
}

const kindOf = ({ apiVersion, kind }: Manifest) => `${apiVersion} ${kind}`;
const titleOf = (manifest: Manifest) => `${manifest.kind} ${manifest.metadata?.name}`;

function schemaProblems(manifest: Manifest): string[] {
  const known = KINDS[kindOf(manifest)];
  if (!known) return [`${kindOf(manifest)} is not known to tools/test/manifests.ts`];
  try {
    new known[0](manifest as never).validate();
    return [];
  } catch (error) {
    return [`${titleOf(manifest)}: ${(error as Error).message}`];
  }
}

/** The schemas allow any field, as Kubernetes does, which drops those that it does not know; their types do not. */
function unknownFields(manifests: readonly Manifest[]): string[] {
  const known = manifests.filter((manifest) => kindOf(manifest) in KINDS);
  const lines = known.map((manifest, i) => {
    const name = `I${manifest.kind}`;
    return `import type { ${name} as T${i} } from '${KINDS[kindOf(manifest)][1]}'; export const m${i}: T${i} = ${JSON.stringify(manifest)};`;
  });
  // In the repository, from where the packages are found.
  const folder = join(ROOT, '.cache/test');
  mkdirSync(folder, { recursive: true });
  const file = join(folder, `manifests-${process.pid}.ts`);
  writeFileSync(file, lines.join('\n'));
  const program = ts.createProgram([file], {
    module: ts.ModuleKind.ESNext,
    moduleResolution: ts.ModuleResolutionKind.Bundler,
    target: ts.ScriptTarget.ES2022,
    strict: true,
    skipLibCheck: true,
    noEmit: true,
    types: [],
  });
  const found = ts.getPreEmitDiagnostics(program).map(({ start, file: at, messageText }) => {
    const line = at && start !== undefined ? at.getLineAndCharacterOfPosition(start).line : 0;
    return `${titleOf(known[line])}: ${ts.flattenDiagnosticMessageText(messageText, ' ')}`;
  });
  rmSync(file);
  return found;
}

/** Volumes, ports, labels and services that are named and not there. */
function looseEnds(manifests: readonly Manifest[]): string[] {
  const problems: string[] = [];
  const pods = manifests.filter(({ spec }) => spec?.template?.spec?.containers);
  const services = manifests.filter(({ kind }) => kind === 'Service');
  const wanted = (of: Manifest, is: boolean, what: string) => {
    if (!is) problems.push(`${titleOf(of)}: ${what}`);
  };
  const has = (labels: Manifest, selector: Manifest) =>
    Object.entries(selector ?? {}).every(([key, value]) => labels?.[key] === value);
  for (const workload of pods) {
    const { template, selector, volumeClaimTemplates = [], serviceName } = workload.spec;
    const { containers, volumes = [] } = template.spec;
    const names = [
      ...volumes.map(({ name }: Manifest) => name),
      ...volumeClaimTemplates.map((of: Manifest) => of.metadata.name),
    ];
    wanted(workload, new Set(names).size === names.length, 'has two volumes of one name');
    wanted(workload, has(template.metadata?.labels, selector?.matchLabels), 'selects other labels than its pods have');
    for (const { name, volumeMounts = [], ports = [], ...container } of containers) {
      for (const mount of volumeMounts)
        wanted(workload, names.includes(mount.name), `${name} mounts ${mount.name}, which is no volume`);
      for (const [probe, { httpGet }] of Object.entries(container).filter(([key]) => key.endsWith('Probe')) as Manifest)
        wanted(
          workload,
          ports.some((port: Manifest) => port.name === httpGet.port),
          `${probe} asks the port ${httpGet.port}`,
        );
    }
    if (serviceName !== undefined)
      wanted(
        workload,
        services.some(({ metadata }) => metadata.name === serviceName),
        `there is no service ${serviceName}`,
      );
  }
  for (const { spec, ...service } of services) {
    const behind = pods.filter((pod) => has(pod.spec.template.metadata.labels, spec.selector));
    wanted(service, behind.length > 0, 'selects no pods');
    const ports = behind.flatMap((pod) =>
      pod.spec.template.spec.containers.flatMap((one: Manifest) => one.ports ?? []),
    );
    for (const { targetPort } of spec.ports)
      if (typeof targetPort === 'string')
        wanted(
          service,
          ports.some(({ name }: Manifest) => name === targetPort),
          `leads to the port ${targetPort}`,
        );
  }
  for (const monitor of manifests.filter(({ kind }) => kind === 'ServiceMonitor')) {
    const behind = services.filter(({ metadata }) => has(metadata.labels, monitor.spec.selector.matchLabels));
    wanted(monitor, behind.length === 1, `selects ${behind.length} services, and one has all pods`);
    for (const { port } of monitor.spec.endpoints)
      wanted(
        monitor,
        behind.every(({ spec }) => spec.ports.some(({ name }: Manifest) => name === port)),
        `asks the port ${port}`,
      );
  }
  for (const scaled of manifests.filter(({ kind }) => kind === 'ScaledObject')) {
    const { kind, name } = scaled.spec.scaleTargetRef;
    const target = pods.find((pod) => pod.kind === kind && pod.metadata.name === name);
    wanted(scaled, target !== undefined, `scales ${kind} ${name}`);
    // Or an upgrade would set the number that KEDA has chosen.
    wanted(scaled, target?.spec.replicas === undefined, `${kind} ${name} has a number of replicas, too`);
  }
  return problems;
}
