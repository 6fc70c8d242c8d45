/**
 * Markdown as DOM nodes. Nothing here is ever parsed as HTML: every text becomes a text node, links go to http, https and
 * mailto alone, and images are links, so that what a model writes can neither run nor load anything.
 */

const MAX_DEPTH = 12;
const LINK_SCHEMES = /^(https?:\/\/|mailto:)/i;
const MARKERS = { '**': 'strong', __: 'strong', '~~': 'del', '*': 'em', _: 'em' };

/** @param {string} text @returns {DocumentFragment} */
export function renderMarkdown(text) {
  const fragment = document.createDocumentFragment();
  blocks(text.replace(/\r\n?/g, '\n').split('\n'), fragment, 0);
  return fragment;
}

function element(tag, ...children) {
  const node = document.createElement(tag);
  node.append(...children);
  return node;
}

/** @param {string[]} lines @param {Node} parent */
function blocks(lines, parent, depth) {
  let paragraph = [];
  const flush = () => {
    if (paragraph.length > 0) parent.append(inline(element('p'), paragraph.join('\n'), 0));
    paragraph = [];
  };
  for (let i = 0; i < lines.length; ) {
    const line = lines[i];
    const fence = /^ {0,3}(`{3,}|~{3,})\s*([^`]*)$/.exec(line);
    const heading = /^ {0,3}(#{1,6})\s(.*)$/s.exec(line);
    if (fence) {
      flush();
      const end = findFence(lines, i + 1, fence[1]);
      parent.append(codeBlock(lines.slice(i + 1, end).join('\n'), fence[2].trim().split(/\s/)[0]));
      i = end + 1;
    } else if (heading) {
      flush();
      parent.append(inline(element(`h${heading[1].length}`), titleOf(heading[2]), 0));
      i++;
    } else if (/^ {0,3}([-*_])(\s*\1){2,}\s*$/.test(line)) {
      flush();
      parent.append(element('hr'));
      i++;
    } else if (/^ {0,3}>/.test(line) && depth < MAX_DEPTH) {
      flush();
      const end = lines.findIndex((other, j) => j > i && !/^ {0,3}>/.test(other));
      const quoted = lines.slice(i, end < 0 ? lines.length : end).map((one) => one.replace(/^ {0,3}> ?/, ''));
      const quote = element('blockquote');
      blocks(quoted, quote, depth + 1);
      parent.append(quote);
      i += quoted.length;
    } else if (listItem(line) && depth < MAX_DEPTH) {
      flush();
      i = list(lines, i, parent, depth);
    } else if (
      line.includes('|') &&
      /^[\s:|-]+$/.test(lines[i + 1] ?? '') &&
      lines[i + 1].includes('-') &&
      lines[i + 1].includes('|')
    ) {
      flush();
      i = table(lines, i, parent);
    } else {
      if (line.trim() === '') flush();
      else paragraph.push(line);
      i++;
    }
  }
  flush();
}

/** A heading's text, without the hashes that may close it. */
function titleOf(text) {
  const shown = text.trim();
  let end = shown.length;
  while (shown[end - 1] === '#') end--;
  return end === 0 || /\s/.test(shown[end - 1]) ? shown.slice(0, end).trim() : shown;
}

/** The line that ends a fence; the end of the text while it is still being written. */
function findFence(lines, from, mark) {
  for (let i = from; i < lines.length; i++) {
    const line = lines[i].trim();
    if (line.length >= mark.length && line === mark[0].repeat(line.length)) return i;
  }
  return lines.length;
}

function codeBlock(code, language) {
  // The page listens for it.
  const copy = element('button', 'Copy');
  copy.type = 'button';
  const head = element('div', element('span', language), copy);
  head.className = 'head';
  const block = element('div', head, element('pre', element('code', code)));
  block.className = 'block';
  return block;
}

function listItem(line) {
  return /^(\s*)([-*+]|\d{1,9}[.)])(\s+|$)/.exec(line);
}

/** A list and what is indented under its items. @returns {number} the line after it */
function list(lines, from, parent, depth) {
  const [, indent, marker] = listItem(lines[from]);
  const isOrdered = /\d/.test(marker);
  const node = element(isOrdered ? 'ol' : 'ul');
  if (isOrdered && Number.parseInt(marker, 10) !== 1) node.start = Number.parseInt(marker, 10);
  let i = from;
  while (i < lines.length) {
    const item = listItem(lines[i]);
    if (
      !item ||
      item[1].length > indent.length + 1 ||
      item[1].length < indent.length ||
      /\d/.test(item[2]) !== isOrdered
    )
      break;
    const content = [lines[i].slice(item[0].length)];
    for (i++; i < lines.length; i++) {
      const line = lines[i];
      const isBlank = line.trim() === '';
      const isInside = line.search(/\S/) > indent.length + 1;
      if (
        isBlank ? !/^\s+\S/.test(lines[i + 1] ?? '') || (lines[i + 1] ?? '').search(/\S/) <= indent.length : !isInside
      )
        break;
      content.push(line.slice(Math.min(line.search(/\S|$/), item[0].length)));
    }
    const own = element('li');
    // An item of one line needs no paragraph.
    const next = content.findIndex(
      (line, j) => j > 0 && (line.trim() === '' || listItem(line) || /^\s*(```|~~~|>)/.test(line)),
    );
    const head = content.slice(0, next < 0 ? content.length : next);
    inline(own, head.join('\n'), 0);
    if (next >= 0) blocks(content.slice(next), own, depth + 1);
    node.append(own);
    // One empty line between items leaves them one list.
    if (lines[i]?.trim() === '' && listItem(lines[i + 1] ?? '')?.[1].length === indent.length) i++;
  }
  parent.append(node);
  return i;
}

function table(lines, from, parent) {
  const cells = (line) =>
    line
      .trim()
      .replace(/^\||\|$/g, '')
      .split('|')
      .map((cell) => cell.trim());
  const row = (tag, line) => element('tr', ...cells(line).map((cell) => inline(element(tag), cell, 0)));
  const body = element('tbody');
  let i = from + 2;
  for (; i < lines.length && lines[i].includes('|'); i++) body.append(row('td', lines[i]));
  const holder = element('div', element('table', element('thead', row('th', lines[from])), body));
  holder.className = 'table';
  parent.append(holder);
  return i;
}

/** Appends the nodes of a paragraph's text. Markers whose end is not found once are text from there on. */
function inline(parent, text, depth) {
  let plain = '';
  const missing = new Set();
  const flush = () => {
    if (plain !== '') parent.append(plain);
    plain = '';
  };
  const put = (node) => {
    flush();
    parent.append(node);
  };
  for (let i = 0; i < text.length; ) {
    const c = text[i];
    if (c === '\\' && /[!-/:-@[-`{-~]/.test(text[i + 1] ?? '')) {
      plain += text[i + 1];
      i += 2;
    } else if (c === '\n') {
      // Asked of the text: what was put together so far would be copied for it.
      if (text.startsWith('  ', i - 2)) put(element('br'));
      else plain += '\n';
      i++;
    } else if (c === '`') {
      const [mark] = /^`+/.exec(text.slice(i, i + 8));
      const end = missing.has(mark) ? -1 : text.indexOf(mark, i + mark.length);
      if (end < 0) {
        missing.add(mark);
        plain += mark;
        i += mark.length;
      } else {
        put(
          element(
            'code',
            text
              .slice(i + mark.length, end)
              .replace(/\n/g, ' ')
              .replace(/^ (.+) $/, '$1'),
          ),
        );
        i = end + mark.length;
      }
    } else if (c === '[' || (c === '!' && text[i + 1] === '[')) {
      const found = missing.has('[')
        ? null
        : /^!?\[([^\]\n]{0,500})\]\(\s*<?([^\s()<>]{1,2000})>?(?:\s+"[^"\n]{0,300}")?\s*\)/.exec(
            text.slice(i, i + 3000),
          );
      if (!found) {
        plain += c;
        i++;
      } else {
        put(link(found[2], found[1] === '' ? found[2] : found[1], depth));
        i += found[0].length;
      }
    } else if (
      c === 'h' &&
      /^https?:\/\/[^\s<>"'`)\]]+/.test(text.slice(i, i + 2000)) &&
      !/\w/.test(text[i - 1] ?? '')
    ) {
      const [url] = /^https?:\/\/[^\s<>"'`)\]]*[^\s<>"'`)\].,;:!?]/.exec(text.slice(i, i + 2000)) ?? ['h'];
      if (url === 'h') plain += url;
      else put(link(url, url, MAX_DEPTH));
      i += url.length;
    } else {
      const mark = Object.keys(MARKERS).find((one) => text.startsWith(one, i));
      const end = mark ? closing(text, i, mark, missing) : -1;
      if (end < 0 || depth >= MAX_DEPTH) {
        plain += mark ?? c;
        i += (mark ?? c).length;
      } else {
        put(inline(element(MARKERS[mark]), text.slice(i + mark.length, end), depth + 1));
        i = end + mark.length;
      }
    }
  }
  flush();
  return parent;
}

/** Where emphasis that begins at `from` ends; -1 where it is none. */
function closing(text, from, mark, missing) {
  if (missing.has(mark)) return -1;
  const isWord = (c) => c !== undefined && /\w/.test(c);
  const first = text[from + mark.length];
  if (first === undefined || /\s/.test(first) || (mark[0] === '_' && isWord(text[from - 1]))) return -1;
  for (let at = text.indexOf(mark, from + mark.length + 1); at >= 0; at = text.indexOf(mark, at + 1)) {
    if (/\s|\\/.test(text[at - 1]) || (mark[0] === '_' && isWord(text[at + mark.length]))) continue;
    // A single mark does not end within a double one.
    if (mark.length === 1 && (text[at + 1] === mark || text[at - 1] === mark)) {
      while (text[at + 1] === mark) at++;
      continue;
    }
    return at;
  }
  missing.add(mark);
  return -1;
}

function link(url, label, depth) {
  const content = depth < MAX_DEPTH ? inline(element('span'), label, MAX_DEPTH) : label;
  if (!LINK_SCHEMES.test(url)) return element('span', content, ` (${url})`);
  const node = element('a', content);
  node.href = url;
  node.rel = 'noopener noreferrer nofollow';
  node.target = '_blank';
  return node;
}
