/**
 * Settings (`X_*`) whose values the library refuses. There is no list of them here: what reads settings is done, and where it
 * fails, the setting without which it fails otherwise or not at all is the one. Runs in the process of a probe, whose
 * environment it changes.
 */
import { processGroup } from '@x/engine';
import { type Platform, platforms } from '@x/hip';
import { KernelDevice } from '@x/rocm-backend';

export interface RefusedSetting {
  variable: string;
  /** Names it, its value, and what it may be. */
  message: string;
}

interface Failure {
  code?: string;
  message: string;
}

/** Failures of what was asked for. Others are of the machine, and may differ from one try to the next. */
const OF_VALUES = ['INVALID_ARGUMENT', 'INVALID_OPTION', 'LIBRARY_NOT_FOUND', 'SYMBOL_MISSING'];

/** @param platform whose devices are tried; with the host's, what processes that compute together do first */
export function refusedSettings(platform: Platform): RefusedSetting[] {
  const trials = [() => open(platform), ...(platform === 'host' ? [processGroup, listen] : [])];
  return trials.flatMap(refusedIn);
}

function open(platform: Platform): void {
  const [report] = platforms([platform]);
  if (report?.reason) throw report.reason;
  KernelDevice.open(platform === 'host' ? 'cpu' : platform, 0).dispose();
}

function listen(): void {
  const device = KernelDevice.open('cpu', 0);
  try {
    device.hip.groupId();
  } finally {
    device.dispose();
  }
}

function refusedIn(trial: () => unknown): RefusedSetting[] {
  const refused: RefusedSetting[] = [];
  for (;;) {
    const failure = failureOf(trial);
    if (!failure) return refused;
    const set = Object.keys(process.env).filter((name) => /^X_\w+$/.test(name));
    const named = set.filter((name) => placeIn(failure, name) >= 0);
    if (named.length === 0 && !OF_VALUES.includes(failure.code ?? '')) return refused;
    const variable = [...named, ...set].find((name) => isCause(name, trial, failure));
    if (variable === undefined) return refused;
    refused.push({ variable, message: sentence(variable, failure) });
    // The next failure may have been hidden by this one.
    Reflect.deleteProperty(process.env, variable);
  }
}

function failureOf(trial: () => unknown): Failure | undefined {
  try {
    trial();
    return undefined;
  } catch (error) {
    return error as Failure;
  }
}

function placeIn({ message }: Failure, variable: string): number {
  return message.search(new RegExp(`\\b${variable}\\b`));
}

/** Whether a trial ends otherwise without a setting. */
function isCause(variable: string, trial: () => unknown, { message }: Failure): boolean {
  const value = read(variable);
  Reflect.deleteProperty(process.env, variable);
  const without = failureOf(trial);
  Object.assign(process.env, { [variable]: value });
  return without?.message !== message;
}

/** The library's words from where they name the setting on; before that they may say which call failed. */
function sentence(variable: string, failure: Failure): string {
  const place = placeIn(failure, variable);
  return place >= 0 ? failure.message.slice(place) : `${variable}=${read(variable)}: ${failure.message}`;
}

function read(variable: string): string {
  const { [variable]: value = '' } = process.env;
  return value;
}
