/**
 * Processes that compute a model together, as launchers describe them to each: `RANK`, `WORLD_SIZE`, `MASTER_ADDR` and
 * `MASTER_PORT`, which torchrun and its like set, and `LOCAL_RANK`, the process's number on its machine.
 */
import { kinds, settings } from '@x/core';
import { TransformersError } from '@x/transformers';

export interface ProcessGroup {
  /** From 0 to size - 1; 0 leads and listens. */
  rank: number;
  size: number;
  /** Of rank 0: a name or address that the others reach it by. */
  host: string;
  port: number;
  /** Of the process on its machine: the number of its device, where none is named. */
  localRank: number;
  /** What processes show that they belong together. Needed unless all are on one machine (`host` is a loopback address). */
  token: string | undefined;
}

type Environment = Readonly<Record<string, string | undefined>>;

const MIN_TOKEN = 16;

/**
 * The group that this process was started in; undefined where it was started alone. Beside torchrun's variables:
 * `X_GROUP_TOKEN`, a secret that is the same in all processes, and `X_GROUP_PORT`, a port in place of `MASTER_PORT`.
 * @throws TransformersError INVALID_OPTION for variables that are missing or no numbers
 */
export function processGroup(environment: Environment = process.env): ProcessGroup | undefined {
  const { WORLD_SIZE, MASTER_ADDR } = environment;
  if (WORLD_SIZE === undefined || WORLD_SIZE === '') return undefined;
  const size = whole('WORLD_SIZE', WORLD_SIZE, 1, 4096);
  if (size === 1) return undefined;
  const rank = whole('RANK', environment.RANK, 0, size - 1);
  if (!MASTER_ADDR) throw bad('MASTER_ADDR is not set; give the name or address of the machine with rank 0');
  const localRank = environment.LOCAL_RANK ? whole('LOCAL_RANK', environment.LOCAL_RANK, 0, 4096) : 0;
  const group = {
    rank,
    size,
    host: MASTER_ADDR,
    port: portOf(environment),
    localRank,
    token: settings.groupToken() || undefined,
  };
  checkToken(group);
  return group;
}

/** @throws TransformersError INVALID_OPTION where strangers could join */
function checkToken({ host, token }: ProcessGroup): void {
  if (token === undefined && !isLoopback(host)) {
    throw bad(
      `the ranks meet at ${host}, which other machines reach, and there is no secret; set X_GROUP_TOKEN to the same ${MIN_TOKEN} characters or more in all processes, such as what "openssl rand -hex 32" gives`,
    );
  }
  if (token !== undefined && token.length < MIN_TOKEN)
    throw bad(`X_GROUP_TOKEN has ${token.length} characters; give at least ${MIN_TOKEN}`);
}

/** @throws TransformersError INVALID_OPTION for what {@link processGroup} would not have given */
export function checkGroup(group: ProcessGroup): void {
  const { rank, size, host, port, localRank, token } = group;
  const isWhole = (value: unknown, from: number, to: number) =>
    Number.isInteger(value) && (value as number) >= from && (value as number) <= to;
  if (!isWhole(size, 2, 4096)) throw bad(`size is ${size}; give a whole number from 2`);
  if (!isWhole(rank, 0, size - 1)) throw bad(`rank is ${rank}; give a whole number from 0 to ${size - 1}`);
  if (!isWhole(port, 1, 65_535)) throw bad(`port is ${port}; give a whole number from 1 to 65535`);
  if (!isWhole(localRank, 0, 4096)) throw bad(`localRank is ${localRank}; give a whole number from 0`);
  if (typeof host !== 'string' || host === '') throw bad('host is no name or address');
  if (token !== undefined && typeof token !== 'string') throw bad('token is no text');
  checkToken(group);
}

export function isLoopback(host: string): boolean {
  return host === 'localhost' || host === '::1' || /^127\.\d+\.\d+\.\d+$/.test(host);
}

function portOf({ MASTER_PORT, TORCHELASTIC_USE_AGENT_STORE }: Environment): number {
  const own = settings.groupPort();
  if (own !== '') return whole('X_GROUP_PORT', own, 1, 65_535);
  const port = whole('MASTER_PORT', MASTER_PORT, 1, 65_535);
  // torchrun's own agent listens there then.
  return TORCHELASTIC_USE_AGENT_STORE === 'True' ? (port % 65_535) + 1 : port;
}

function whole(name: string, text: string | undefined, from: number, to: number): number {
  const value = text !== undefined && /^\d+$/.test(text) ? Number(text) : Number.NaN;
  if (value >= from && value <= to) return value;
  throw bad(
    `${name} is ${text === undefined ? 'not set' : kinds.show(text)}; give a whole number from ${from} to ${to}`,
  );
}

function bad(what: string): TransformersError {
  return new TransformersError('INVALID_OPTION', `Processes of a model: ${what}.`);
}
