/** Where a redirect may lead: never from a public host to an address of this machine or of a private network. */
import { lookup } from 'node:dns/promises';
import { BlockList, isIP } from 'node:net';
import { HubError } from './errors';

/** Addresses that are not of the public internet (IANA's special-purpose registries). */
const PRIVATE = new BlockList();
for (const [network, bits] of [
  ['0.0.0.0', 8],
  ['10.0.0.0', 8],
  ['100.64.0.0', 10],
  ['127.0.0.0', 8],
  ['169.254.0.0', 16],
  ['172.16.0.0', 12],
  ['192.0.0.0', 24],
  ['192.168.0.0', 16],
  ['198.18.0.0', 15],
  ['224.0.0.0', 3],
] as const)
  PRIVATE.addSubnet(network, bits, 'ipv4');
for (const [network, bits] of [
  ['::', 96],
  ['64:ff9b:1::', 48],
  ['fc00::', 7],
  ['fe80::', 10],
  ['fec0::', 10],
  ['ff00::', 8],
] as const)
  PRIVATE.addSubnet(network, bits, 'ipv6');

/** Whether an IP address is of this machine, a private network or nobody; also as IPv4 within IPv6. */
export function isPrivateAddress(address: string): boolean {
  const bare = address.replace(/^\[|\]$/g, '').replace(/%.*$/, '');
  if (isIP(bare) === 4) return PRIVATE.check(bare, 'ipv4');
  if (isIP(bare) !== 6) return false;
  // A block list compares addresses mapped from IPv4 with the IPv4 networks; those translated (NAT64, 6to4) hold theirs elsewhere.
  if (PRIVATE.check(bare, 'ipv6')) return true;
  const embedded = embeddedIpv4(bare);
  return embedded !== undefined && PRIVATE.check(embedded, 'ipv4');
}

/** The IPv4 address in one of IPv6 that stands for it: `::ffff:a.b.c.d`, `64:ff9b::a.b.c.d`, `2002:ab.cd::`. */
function embeddedIpv4(address: string): string | undefined {
  const words = wordsOf(address);
  const text = (high: number, low: number) => [high >> 8, high & 255, low >> 8, low & 255].join('.');
  if (words[0] === 0x2002) return text(words[1], words[2]);
  const start = words.slice(0, 6).join(':');
  const mapped = [0, 0, 0, 0, 0, 0xffff].join(':');
  const translated = [0x64, 0xff9b, 0, 0, 0, 0].join(':');
  return start === mapped || start === translated ? text(words[6], words[7]) : undefined;
}

/** The eight words of an IPv6 address; URL writes it without dots. */
function wordsOf(address: string): number[] {
  const plain = new URL(`http://[${address}]`).hostname.slice(1, -1);
  const [left, right] = plain.split('::');
  const parse = (part: string | undefined) => (part ? part.split(':').map((word) => Number.parseInt(word, 16)) : []);
  const [head, tail] = [parse(left), parse(right)];
  return [...head, ...new Array<number>(Math.max(0, 8 - head.length - tail.length)).fill(0), ...tail];
}

/** Whether a host is, or may lead to, a private address. A name that has no address here is none: a proxy may know it. */
async function isPrivateHost(hostname: string): Promise<boolean> {
  const bare = hostname.replace(/^\[|\]$/g, '').replace(/\.$/, '');
  if (isIP(bare) !== 0) return isPrivateAddress(bare);
  if (bare === 'localhost' || bare.endsWith('.localhost')) return true;
  try {
    const addresses = await lookup(bare, { all: true });
    return addresses.some(({ address }) => isPrivateAddress(address));
  } catch {
    return false;
  }
}

/**
 * Checks one redirect. What a private host (a mirror at work, a test) says is followed anywhere: its user chose it.
 * @throws HubError UNSAFE_REDIRECT
 */
export async function checkRedirect(from: URL, to: URL): Promise<void> {
  const fail = (what: string) =>
    new HubError(
      'UNSAFE_REDIRECT',
      `${from.host} redirects to ${to.protocol}//${to.host}, ${what}. Nothing was asked of it. Check HF_ENDPOINT and the network.`,
    );
  if (to.protocol !== 'https:' && to.protocol !== 'http:') throw fail('which is no web address');
  if (to.username !== '' || to.password !== '') throw fail('with a password in the address');
  if (to.protocol === 'http:' && from.protocol === 'https:')
    throw fail('where anybody could read and change what is sent');
  if (to.host === from.host || (await isPrivateHost(from.hostname))) return;
  if (await isPrivateHost(to.hostname)) throw fail('an address of this machine or of a private network');
}
