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

/** Null where the browser denies it: then nothing is kept. */
const storage = usableStorage();
export const isKept = storage !== null;

/** @typedef {{ id: string, parent: string | null, role: 'user' | 'assistant', content: string, changed: number, reasoning?: string, error?: string, note?: string }} Message */
/** @typedef {{ id: string, title: string, changed: number, messages: Record<string, Message>, leaf: string | null }} Conversation */

export function newId() {
  return Array.from(crypto.getRandomValues(new Uint8Array(9)), (byte) => byte.toString(36).padStart(2, '0')).join('');
}

/** @returns {Conversation} `messages` has no prototype: an id may be any name */
export function newConversation() {
  return { id: newId(), title: 'New conversation', changed: Date.now(), messages: Object.create(null), leaf: null };
}

/** All that is kept, the last changed first. What cannot be read is left out. @returns {Conversation[]} */
export function loadConversations() {
  const names = Array.from({ length: storage?.length ?? 0 }, (_, i) => storage.key(i));
  return names
    .filter((name) => name.startsWith(PREFIX))
    .map((name) => loadConversation(name.slice(PREFIX.length)))
    .filter(Boolean)
    .sort((a, b) => b.changed - a.changed);
}

/** @returns {Conversation | null} */
export function loadConversation(id) {
  const found = checked(read(PREFIX + id));
  return found?.id === id ? found : null;
}

/** Keeps a conversation, along with what another tab added to it. @returns {boolean} false when there is no more room */
export function saveConversation(conversation) {
  const kept = loadConversation(conversation.id);
  if (kept) merge(conversation, kept);
  return write(PREFIX + conversation.id, conversation);
}

export function removeConversation({ id }) {
  storage?.removeItem(PREFIX + id);
}

export function loadSettings() {
  const kept = read(SETTINGS);
  return { ...DEFAULTS, ...(kept && typeof kept === 'object' ? kept : {}) };
}

/** @returns {boolean} false when there is no more room */
export function saveSettings(settings) {
  return write(SETTINGS, settings);
}

/** Calls back when another tab keeps or deletes a conversation, with its id, and when it keeps settings. */
export function onOtherTab({ conversation, settings }) {
  addEventListener('storage', ({ key }) => {
    if (key?.startsWith(PREFIX)) conversation(key.slice(PREFIX.length));
    else if (key === SETTINGS) settings();
  });
}

/** Takes over what another tab kept. What is shown stays, unless the other tab went on from there. */
export function adopt(conversation, kept) {
  merge(conversation, kept);
  conversation.title = kept.title;
  conversation.changed = Math.max(conversation.changed, kept.changed);
  const goesOn = conversation.leaf === null || pathOf(kept).some(({ id }) => id === conversation.leaf);
  if (goesOn) conversation.leaf = kept.leaf;
}

/** Adds the messages of `kept`. Of a message that both have, the one that changed last counts. */
function merge({ messages }, kept) {
  for (const message of Object.values(kept.messages)) {
    const own = messages[message.id];
    if (!own) messages[message.id] = message;
    else if (message.changed > own.changed) {
      const { content, changed, reasoning, error, note } = message;
      Object.assign(own, { content, changed, reasoning, error, note });
    }
  }
}

/** Marks a message as changed now, later than before even within a millisecond. @param {Message} message */
export function touch(message) {
  message.changed = Math.max(Date.now(), message.changed + 1);
}

/** Messages from the first to the leaf. @param {Conversation} conversation @returns {Message[]} */
export function pathOf({ messages, leaf }) {
  const path = [];
  for (let at = leaf; at !== null; at = messages[at].parent) path.push(messages[at]);
  return path.reverse();
}

/** Messages by the id of the one they follow; the first ones by null. @returns {Map<string | null, Message[]>} */
export function byParent({ messages }) {
  const lists = new Map();
  for (const message of Object.values(messages)) {
    const list = lists.get(message.parent);
    if (list) list.push(message);
    else lists.set(message.parent, [message]);
  }
  return lists;
}

/** @returns {Message} the new leaf */
export function append(conversation, parent, role, content) {
  const message = { id: newId(), parent, role, content, changed: Date.now() };
  conversation.messages[message.id] = message;
  conversation.leaf = message.id;
  conversation.changed = Date.now();
  return message;
}

/** Shows a message's branch, down to the end of its newest continuation. */
export function choose(conversation, message) {
  const next = byParent(conversation);
  let leaf = message.id;
  while (next.has(leaf)) leaf = next.get(leaf).at(-1).id;
  conversation.leaf = leaf;
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

function usableStorage() {
  try {
    return localStorage;
  } catch {
    return null;
  }
}

function read(name) {
  return parse(storage?.getItem(name) ?? '');
}

function write(name, value) {
  try {
    storage?.setItem(name, JSON.stringify(value));
    return true;
  } catch {
    return false;
  }
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
  const messages = Object.create(null);
  const has = (id) => typeof id === 'string' && Object.hasOwn(value.messages, id);
  for (const [id, one] of Object.entries(value.messages)) {
    const isMessage = one?.id === id && typeof one.content === 'string' && ['user', 'assistant'].includes(one.role);
    if (!isMessage || !(one.parent === null || has(one.parent))) return null;
    const { parent, role, content } = one;
    const texts = ['reasoning', 'error', 'note']
      .filter((name) => typeof one[name] === 'string')
      .map((name) => [name, one[name]]);
    messages[id] = { id, parent, role, content, changed: timeOf(one), ...Object.fromEntries(texts) };
  }
  if (hasLoop(messages)) return null;
  return {
    id: value.id,
    title: typeof value.title === 'string' ? value.title.slice(0, 200) : '',
    changed: timeOf(value),
    messages,
    leaf: has(value.leaf) ? value.leaf : null,
  };
}

function timeOf({ changed }) {
  return Number.isFinite(changed) ? changed : 0;
}

/** Whether some messages follow each other in a circle: those are not reached from a first message. */
function hasLoop(messages) {
  const next = byParent({ messages });
  const reached = [null];
  for (const id of reached) for (const message of next.get(id) ?? []) reached.push(message.id);
  return reached.length <= Object.keys(messages).length;
}
