/** Rows of the parity tables, and their forms as text and Markdown. */

/**
 * `ok`; `missing`: not there; `differs`: there with other parameters; `failing`: its test fails; `unknown`: nothing was
 * given to judge it by.
 */
export type Status = 'ok' | 'missing' | 'differs' | 'failing' | 'unknown';

export interface Row {
  /** candle's name. */
  item: string;
  /** What stands for it here. */
  ours: string;
  status: Status;
  /** Test files with a passing test that names the item, or `-`. */
  tested: string;
}

export interface Section {
  name: string;
  title: string;
  /** What was read, or why there is nothing to read. */
  source: string;
  /** Counts in no verdict: shown to know, not to fail. */
  informational: boolean;
  rows: Row[];
}

/** `742 of 748 ok, 6 missing`. */
export function summary(section: Section): string {
  const count = (status: Status) => section.rows.filter((row) => row.status === status).length;
  const rest = (['missing', 'differs', 'failing', 'unknown'] as const)
    .filter((status) => count(status) > 0)
    .map((status) => `, ${count(status)} ${status}`);
  return `${count('ok')} of ${section.rows.length} ok${rest.join('')}`;
}

/** Whether --strict fails on this section. */
export function isIncomplete(section: Section): boolean {
  return !section.informational && section.rows.some(({ status }) => status !== 'ok');
}

/** Lines of a table whose columns are as wide as their widest cell. */
export function columns(rows: string[][]): string[] {
  const widths = rows[0]!.map((_, column) => Math.max(...rows.map((row) => row[column]!.length)));
  return rows.map((row) =>
    row
      .map((cell, column) => cell.padEnd(widths[column]!))
      .join('  ')
      .trimEnd(),
  );
}

/** A heading and the table, of every row or only of those that are not ok. */
export function asText(section: Section, onlyOpen = false): string[] {
  const rows = section.rows
    .filter(({ status }) => !onlyOpen || status !== 'ok')
    .map(({ item, ours, status, tested }) => [item, ours, status, tested]);
  const heading = [
    `== ${section.title}: ${summary(section)}${section.informational ? ' (informational)' : ''}`,
    section.source,
  ];
  if (rows.length === 0) return [...heading, ''];
  return [...heading, ...columns([["candle's item", 'ours', 'status', 'where tested'], ...rows]), ''];
}

const LISTED_IN_FULL = 50;

/** The section for docs/parity.md: counts by group, then every row of a short section, of a long one those not ok. */
export function asMarkdown(section: Section, groupOf: (row: Row) => string): string[] {
  const groups = new Map<string, Row[]>();
  for (const row of section.rows) groups.set(groupOf(row), [...(groups.get(groupOf(row)) ?? []), row]);
  const all = section.rows.length <= LISTED_IN_FULL;
  const shown = section.rows.filter(({ status }) => all || status !== 'ok');
  const lines = [
    `## ${section.title}`,
    '',
    `${summary(section)}${section.informational ? ' (informational)' : ''}. ${section.source}`,
    '',
    '| group | ok | of |',
    '|---|---|---|',
    ...[...groups].map(
      ([name, rows]) => `| ${name} | ${rows.filter(({ status }) => status === 'ok').length} | ${rows.length} |`,
    ),
    '',
  ];
  if (shown.length === 0) return lines;
  const listed = shown.map(({ item, ours, status, tested }) => `| \`${item}\` | ${ours} | ${status} | ${tested} |`);
  return [...lines, "| candle's item | ours | status | where tested |", '|---|---|---|---|', ...listed, ''];
}
