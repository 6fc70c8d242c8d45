import { expect, test, vi } from 'vitest';
import { FairQueue, type Ticket } from './fair-queue';

const forever = new AbortController().signal;
const limits = { maxSequences: 2, maxWaiting: 10, maxPerClient: 100, waitTimeoutMs: 60_000 };
/** Places that are in line at once. */
const enter = (queue: FairQueue, client: string, count: number) => {
  const tickets = queue.enter(client, count);
  for (const ticket of tickets) ticket.line();
  return tickets;
};
const running = (tickets: Ticket[]) => tickets.filter(({ state }) => state === 'running').length;

test('clients take turns whatever they ask for', () => {
  const queue = new FairQueue({ ...limits, maxSequences: 1 });
  const a = enter(queue, 'a', 4);
  const b = enter(queue, 'b', 2);
  const order: string[] = [];
  for (let i = 0; i < 6; i++) {
    const next = [...a, ...b].find(({ state }) => state === 'running')!;
    order.push(next.client);
    next.release();
  }
  expect(order.join('')).toBe('ababaa');
  expect([queue.running, queue.waiting]).toEqual([0, 0]);
});

test('more than the limits allow is refused with a time to come again, all or none', () => {
  const queue = new FairQueue({ ...limits, maxWaiting: 2, maxPerClient: 3 });
  const first = enter(queue, 'a', 3);
  expect([running(first), queue.waiting]).toEqual([2, 1]);
  expect(() => enter(queue, 'a', 1)).toThrow(expect.objectContaining({ status: 429, code: 'rate_limit_exceeded' }));
  expect(() => enter(queue, 'b', 2)).toThrow(
    expect.objectContaining({ status: 429, code: 'server_full', retryAfter: expect.any(Number) }),
  );
  expect([queue.running, queue.waiting]).toEqual([2, 1]);
  for (const ticket of first) ticket.release();
  expect(running(enter(queue, 'b', 2))).toBe(2);
});

test('more than there is ever room for is the request at fault', () => {
  for (const own of [{ maxWaiting: 1 }, { maxPerClient: 3 }]) {
    const queue = new FairQueue({ ...limits, ...own });
    expect(() => queue.enter('a', 4)).toThrow(expect.objectContaining({ status: 400, retryAfter: undefined }));
    expect(() => queue.enter('a', 4)).toThrow(/asks for 4 texts at once; this server has room for 3/);
    expect(queue.enter('a', 3)).toHaveLength(3);
  }
});

test('one that waits leaves with the signal, and its place goes to others', async () => {
  const queue = new FairQueue({ ...limits, maxSequences: 1 });
  const [first] = enter(queue, 'a', 1);
  const [second] = enter(queue, 'a', 1);
  const [third] = enter(queue, 'b', 1);
  const controller = new AbortController();
  const waiting = second.ready(controller.signal);
  controller.abort(new Error('gone'));
  await expect(waiting).rejects.toThrow('gone');
  expect(queue.waiting).toBe(1);
  first.release();
  first.release();
  await third.ready(forever);
  expect([queue.running, queue.waiting]).toEqual([1, 0]);
  await expect(second.ready(forever)).rejects.toThrow('gone');
});

test('one that waits too long is told when to come again', async () => {
  vi.useFakeTimers();
  try {
    const queue = new FairQueue({ ...limits, maxSequences: 1, waitTimeoutMs: 50 });
    enter(queue, 'a', 1);
    const [late] = enter(queue, 'a', 1);
    const waiting = late.ready(forever);
    vi.advanceTimersByTime(51);
    await expect(waiting).rejects.toMatchObject({ status: 503, code: 'server_full' });
    expect(queue.waiting).toBe(0);
  } finally {
    vi.useRealTimers();
  }
});

test('one that is held counts, and takes no slot from others', () => {
  const queue = new FairQueue({ ...limits, maxSequences: 1, maxWaiting: 1 });
  const [held] = queue.enter('a', 1);
  const [other] = enter(queue, 'b', 1);
  expect([other.state, queue.waiting]).toEqual(['running', 1]);
  expect(() => queue.enter('c', 1)).toThrow(expect.objectContaining({ status: 429 }));
  held.line();
  expect(held.state).toBe('waiting');
  other.release();
  expect(held.state).toBe('running');
  held.release();
  const [left] = queue.enter('a', 1);
  left.release();
  expect([queue.running, queue.waiting]).toEqual([0, 0]);
});
