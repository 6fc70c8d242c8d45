/** Formats of strings as patterns of the whole text, by the documents that JSON Schema names for them. */
import { ANY_NUMBER } from './case';
import type { Interval } from './interval';

/** Of numbers, by OpenAPI. */
export const NUMBER_FORMATS: ReadonlyMap<string, Interval> = new Map([
  ['int32', { ...ANY_NUMBER, low: -(2 ** 31), high: 2 ** 31 - 1 }],
  ['int64', ANY_NUMBER],
  ['float', ANY_NUMBER],
  ['double', ANY_NUMBER],
]);

// RFC 3339 with the lengths of months; 29 February in leap years.
const LEAP = '(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)';
const DATE =
  `(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)` +
  `|02-(?:0[1-9]|1[0-9]|2[0-8]))|${LEAP}-02-29)`;
// Without leap seconds, which not every day has.
const TIME = '(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,9})?(?:[Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])';
const OCTET = '(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])';
const IPV4 = `${OCTET}(?:\\.${OCTET}){3}`;
const GROUP = '[0-9A-Fa-f]{1,4}';
/** RFC 4291: eight groups of which `::` stands for one or more, the last two perhaps as IPv4. */
const IPV6 = (() => {
  const groups = (n: number) => (n === 0 ? '' : n === 1 ? GROUP : `${GROUP}(?::${GROUP}){${n - 1}}`);
  const forms = [groups(8), `${groups(6)}:${IPV4}`];
  for (let before = 0; before <= 7; before++) {
    const most = 7 - before;
    for (let behind = 0; behind <= most; behind++) forms.push(`${groups(before)}::${groups(behind)}`);
    for (let behind = 0; behind <= most - 2; behind++)
      forms.push(`${groups(before)}::${behind > 0 ? `${groups(behind)}:` : ''}${IPV4}`);
  }
  return `(?:${forms.join('|')})`;
})();
// Without labels such as xn--..., which stand for other characters by rules of their own.
const LABEL =
  '(?:[A-Za-z0-9](?:[A-Za-z0-9-]{0,2}[A-Za-z0-9])?' +
  '|[A-Za-z0-9][A-Za-z0-9-](?:[A-Za-z0-9][A-Za-z0-9-]|-[A-Za-z0-9])[A-Za-z0-9-]{0,58}[A-Za-z0-9])';
const HOSTNAME = `(?=.{1,253}$)${LABEL}(?:\\.${LABEL})*`;
const ATEXT = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+";
// With a domain of two labels at least, which checkers often want.
const EMAIL = `${ATEXT}(?:\\.${ATEXT})*@${LABEL}(?:\\.${LABEL})+`;
const UUID = '[0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}';
// RFC 3986.
const UNRESERVED = "[A-Za-z0-9._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2}";
const PCHAR = `(?:${UNRESERVED}|[:@])`;
const REG_NAME = `(?:${UNRESERVED})*`;
const AUTHORITY = `(?:(?:${UNRESERVED}|:)*@)?(?:\\[${IPV6}\\]|${REG_NAME})(?::[0-9]*)?`;
const SEGMENTS = `(?:/${PCHAR}*)*`;
const QUERY = `(?:\\?(?:${PCHAR}|[/?])*)?(?:#(?:${PCHAR}|[/?])*)?`;
const HIER = `(?://${AUTHORITY}${SEGMENTS}|/(?:${PCHAR}+${SEGMENTS})?|${PCHAR}+${SEGMENTS})`;
const URI = `[A-Za-z][A-Za-z0-9+.-]*:${HIER}${QUERY}`;
const NO_COLON = `(?:${UNRESERVED}|@)+`;
const RELATIVE = `(?://${AUTHORITY}${SEGMENTS}|/(?:${PCHAR}+${SEGMENTS})?|${NO_COLON}${SEGMENTS}|)${QUERY}`;
const POINTER = '(?:/(?:[^~/]|~[01])*)*';
// RFC 3339, appendix A: units in order, without gaps.
const DURATION_TIME = 'T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S)';
const DURATION_DATE = '(?:[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?|[0-9]+M(?:[0-9]+D)?|[0-9]+D)';
const DURATION = `P(?:${DURATION_DATE}(?:${DURATION_TIME})?|${DURATION_TIME}|[0-9]+W)`;

const FORMATS: ReadonlyMap<string, string> = new Map([
  ['date', DATE],
  ['time', TIME],
  ['date-time', `${DATE}[Tt]${TIME}`],
  ['duration', DURATION],
  ['email', EMAIL],
  ['hostname', HOSTNAME],
  ['ipv4', IPV4],
  ['ipv6', IPV6],
  ['uuid', UUID],
  ['uri', URI],
  ['uri-reference', `(?:${URI}|${RELATIVE})`],
  ['json-pointer', POINTER],
  ['relative-json-pointer', `(?:0|[1-9][0-9]*)(?:#|${POINTER})`],
  ['byte', '(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?'],
]);

/** A pattern of the whole text; undefined for a format that is not known. */
export function formatLanguage(name: string): string | undefined {
  return FORMATS.get(name);
}
