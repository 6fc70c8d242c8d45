/**
 * Conversations and settings, kept in this browser. A conversation is a tree: what is edited or answered again is a new
 * branch beside the old one, and nothing is lost. The path to `leaf` is what is shown and sent.
 */

const PREFIX = 'candle.conversation.';
const SETTINGS = 'candle.settings';
const DEFAULTS = {
  system: '',
  temperature: 0.7,
  topP: 0.95,
  maxTokens: null,
  seed: null,
  key: '',
  thinking: true,
  model: '',
};

/** @typedef {{ id: string, parent: string | null, role: 'user' | 'assistant', content: string, reasoning?: string, error?: string, note?: string }} Message */
/** @typedef {{ id: string, title: string, changed: number, messages: Record<string, Message>, leaf: string | null }} Conversation */

export function newId() {
  return Array.from(crypto.getRandomValues(new Uint8Array(9)), (byte) => byte.toString(36).padStart(2, '0')).join('');
}

/** @returns {Conversation} */
export function newConversation() {
  return { id: newId(), title: 'New conversation', changed: Date.now(), messages: {}, leaf: null };
}

/** All that is kept, the last changed first. What cannot be read is left out. @returns {Conversation[]} */
export function loadConversations() {
  const found = [];
  for (let i = 0; i < localStorage.length; i++) {
    const name = localStorage.key(i);
    if (!name.startsWith(PREFIX)) continue;
    const conversation = checked(parse(localStorage.getItem(name)));
    if (conversation) found.push(conversation);
  }
  return found.sort((a, b) => b.changed - a.changed);
}

/** @returns {boolean} false when the browser has no more room */
export function saveConversation(conversation) {
  try {
    localStorage.setItem(PREFIX + conversation.id, JSON.stringify(conversation));
    return true;
  } catch {
    return false;
  }
}

export function removeConversation({ id }) {
  localStorage.removeItem(PREFIX + id);
}

export function loadSettings() {
  const kept = parse(localStorage.getItem(SETTINGS));
  return { ...DEFAULTS, ...(kept && typeof kept === 'object' ? kept : {}) };
}

export function saveSettings(settings) {
  localStorage.setItem(SETTINGS, JSON.stringify(settings));
}

/** Messages from the first to the leaf. @param {Conversation} conversation @returns {Message[]} */
export function pathOf({ messages, leaf }) {
  const path = [];
  for (let at = leaf; at !== null && path.length <= Object.keys(messages).length; at = messages[at].parent)
    path.unshift(messages[at]);
  return path;
}

/** A message and those beside it. @returns {Message[]} */
export function siblingsOf({ messages }, { parent }) {
  return Object.values(messages).filter((other) => other.parent === parent);
}

/** @returns {Message} the new leaf */
export function append(conversation, parent, role, content) {
  const message = { id: newId(), parent, role, content };
  conversation.messages[message.id] = message;
  conversation.leaf = message.id;
  conversation.changed = Date.now();
  return message;
}

/** Shows a message's branch, down to the end of its newest continuation. */
export function choose(conversation, message) {
  let at = message;
  for (;;) {
    const next = Object.values(conversation.messages).filter(({ parent }) => parent === at.id);
    if (next.length === 0) break;
    at = next.at(-1);
  }
  conversation.leaf = at.id;
}

/** Conversations of an exported file. @throws Error for a file that holds none */
export function readExport(text) {
  const value = parse(text);
  const found = (Array.isArray(value?.conversations) ? value.conversations : []).map(checked).filter(Boolean);
  if (found.length === 0) throw new Error('The file holds no conversations.');
  return found;
}

export function writeExport(conversations) {
  return JSON.stringify({ format: 'candle-conversations', version: 1, conversations }, null, 1);
}

function parse(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

/** A conversation of which every part is as it should be, or nothing. */
function checked(value) {
  if (typeof value?.id !== 'string' || typeof value.messages !== 'object' || value.messages === null) return null;
  const messages = {};
  for (const [id, one] of Object.entries(value.messages)) {
    const isMessage = one?.id === id && typeof one.content === 'string' && ['user', 'assistant'].includes(one.role);
    if (!isMessage || !(one.parent === null || one.parent in value.messages)) return null;
    const texts = ['reasoning', 'error', 'note']
      .filter((name) => typeof one[name] === 'string')
      .map((name) => [name, one[name]]);
    messages[id] = { id, parent: one.parent, role: one.role, content: one.content, ...Object.fromEntries(texts) };
  }
  const leaf = value.leaf in messages ? value.leaf : null;
  return {
    id: value.id,
    title: String(value.title ?? '').slice(0, 200),
    changed: Number(value.changed) || 0,
    messages,
    leaf,
  };
}
