/**
 * How a process shows that it belongs to a group, and the leading one to it: each proves that it knows the group's secret by a
 * hash over a number that the other has just made up, after the challenge and response of SCRAM (RFC 5802). Messages of fixed
 * length, and nothing is parsed before. What follows is not encrypted.
 */
import { createHmac, randomBytes, timingSafeEqual } from 'node:crypto';
import type { Socket } from 'node:net';

/** Of the protocol: ranks of different versions do not meet. */
const MAGIC = Buffer.from('XCG1');
const NONCE = 32;
const PROOF = 32;
/** For the whole of it. */
const HANDSHAKE_MS = 5000;

/** What the leading process answers. */
const ANSWERS = [
  'accepted',
  'refused: another X_GROUP_TOKEN, or another version',
  'refused: its rank is taken or not of the group',
] as const;

function proof(
  token: string,
  who: 'leader' | 'follower',
  challenge: Buffer,
  own: Buffer,
  rank: number,
  size: number,
): Buffer {
  const numbers = Buffer.alloc(8);
  numbers.writeUInt32BE(rank, 0);
  numbers.writeUInt32BE(size, 4);
  return createHmac('sha256', token).update(who).update(challenge).update(own).update(numbers).digest();
}

/**
 * The leading process's part. @param isFree whether a rank may still come
 * @returns the rank, and what came behind @throws Error for a stranger; the socket is then of no use
 */
export async function greet(
  socket: Socket,
  token: string,
  size: number,
  isFree: (rank: number) => boolean,
): Promise<{ rank: number; rest: Buffer }> {
  const challenge = randomBytes(NONCE);
  socket.write(Buffer.concat([MAGIC, challenge]));
  const [hello, rest] = await read(socket, MAGIC.length + NONCE + 8 + PROOF);
  const own = hello.subarray(MAGIC.length, MAGIC.length + NONCE);
  const rank = hello.readUInt32BE(MAGIC.length + NONCE);
  const given = hello.readUInt32BE(MAGIC.length + NONCE + 4);
  const expected = proof(token, 'follower', challenge, own, rank, given);
  const isMember = hello.subarray(0, MAGIC.length).equals(MAGIC) && timingSafeEqual(hello.subarray(-PROOF), expected);
  const answer = !isMember ? 1 : given === size && isFree(rank) ? 0 : 2;
  const word = isMember ? proof(token, 'leader', own, challenge, rank, given) : Buffer.alloc(PROOF);
  socket.write(Buffer.concat([Buffer.from([answer]), word]));
  if (answer !== 0) throw new Error(`${ANSWERS[answer]}`);
  return { rank, rest };
}

/** A following process's part. @returns what came behind @throws Error where it is refused, or the other one is a stranger */
export async function introduce(socket: Socket, token: string, rank: number, size: number): Promise<Buffer> {
  const [hello, early] = await read(socket, MAGIC.length + NONCE);
  if (early.length > 0 || !hello.subarray(0, MAGIC.length).equals(MAGIC))
    throw new Error('what listens there is no leading rank of a model');
  const challenge = hello.subarray(MAGIC.length);
  const own = randomBytes(NONCE);
  const numbers = Buffer.alloc(8);
  numbers.writeUInt32BE(rank, 0);
  numbers.writeUInt32BE(size, 4);
  socket.write(Buffer.concat([MAGIC, own, numbers, proof(token, 'follower', challenge, own, rank, size)]));
  const [answer, rest] = await read(socket, 1 + PROOF);
  if (answer[0] !== 0) throw new Refused(ANSWERS[answer[0]] ?? ANSWERS[1]);
  if (!timingSafeEqual(answer.subarray(1), proof(token, 'leader', own, challenge, rank, size)))
    throw new Refused('the leading rank does not know X_GROUP_TOKEN');
  return rest;
}

/** The answer of a leading rank that it makes no sense to ask again. */
export class Refused extends Error {}

/** The next bytes of a socket, and those that came with them. */
function read(socket: Socket, length: number): Promise<[bytes: Buffer, rest: Buffer]> {
  return new Promise((resolve, reject) => {
    let all = Buffer.alloc(0);
    const settle = (end: () => void) => {
      clearTimeout(timer);
      socket.pause();
      socket.off('data', onData);
      socket.off('error', onError);
      socket.off('close', onClose);
      end();
    };
    const onData = (chunk: Buffer) => {
      all = Buffer.concat([all, chunk]);
      if (all.length >= length) settle(() => resolve([all.subarray(0, length), all.subarray(length)]));
    };
    const onError = (error: Error) => settle(() => reject(error));
    const onClose = () => settle(() => reject(new Error('the connection was closed')));
    const timer = setTimeout(() => settle(() => reject(new Error('it did not introduce itself'))), HANDSHAKE_MS);
    socket.on('data', onData);
    socket.on('error', onError);
    socket.on('close', onClose);
    socket.resume();
  });
}
