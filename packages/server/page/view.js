/** Messages and the list of conversations as DOM nodes. What a button does is the caller's. */
import { renderMarkdown } from './markdown.js';

/** @param {Record<string, unknown>} properties of the node; `class` is its class name */
export function element(tag, properties = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name === 'class') node.className = value;
    else if (name.startsWith('aria-')) node.setAttribute(name, value);
    else node[name] = value;
  }
  node.append(...children);
  return node;
}

function button(label, onclick, title = label) {
  return element('button', { type: 'button', name: title, onclick, title, 'aria-label': title }, label);
}

const SLICE = 100;

/** What each node shows: the message, and all that can change about it as a text. */
const drawn = new WeakMap();

/**
 * Shows the messages of a path. A node whose message did not change stays as it is, and so does an open edit.
 * @param beside messages by their parent
 * @param actions `{ edit, again, goOn, choose, copy }`
 * @returns {boolean} false when some of the first messages are missing yet: a call adds `SLICE`, from the end on
 */
export function drawMessages(parent, path, beside, actions) {
  const wanted = new Set(path);
  const nodes = new Map();
  for (const node of [...parent.children]) {
    const message = drawn.get(node)?.message;
    if (wanted.has(message)) nodes.set(message, node);
    else node.remove();
  }
  const isWhole = path.length - nodes.size <= SLICE;
  let next = null;
  for (const message of path.slice(isWhole ? 0 : -(nodes.size + SLICE)).reverse()) {
    const node = nodes.get(message) ?? parent.insertBefore(newMessageNode(message), next);
    update(node, message, beside.get(message.parent), next === null, actions);
    next = node;
  }
  return isWhole;
}

function newMessageNode({ id, role }) {
  const node = element('article', { class: `message ${role}`, 'aria-label': role === 'user' ? 'You' : 'Answer' });
  node.dataset.id = id;
  return node;
}

function update(node, message, siblings, isLast, actions) {
  const { content, reasoning = '', error, note } = message;
  const place = `${siblings.indexOf(message)}/${siblings.length}`;
  const state = [content.length, reasoning.length, error, note, place, isLast].join('\n');
  if (node.querySelector(':scope > .edit') || drawn.get(node)?.state === state) return;
  drawn.set(node, { message, state });
  fill(node, message);
  node.querySelector(':scope > .tools')?.remove();
  node.append(toolsOf(message, siblings, isLast, actions));
}

/** Writes the text of a message anew while it comes. */
export function rewrite(message) {
  const node = nodeOf(message.id);
  if (node) fill(node, message);
}

/** Reasoning, text and error. */
function fill(node, message) {
  const wasOpen = node.querySelector('details')?.open ?? false;
  for (const old of node.querySelectorAll(':scope > :not(.tools)')) old.remove();
  const parts = [];
  if (message.reasoning) {
    const title = element('summary', {}, message.content === '' ? 'Thinking…' : 'Thoughts');
    parts.push(element('details', { class: 'reasoning', open: wasOpen }, title, message.reasoning));
  }
  const body = element('div', { class: 'body' });
  if (message.role === 'assistant') body.append(renderMarkdown(message.content));
  else body.append(message.content);
  parts.push(body);
  if (message.note) parts.push(element('p', { class: 'hint' }, message.note));
  if (message.error) parts.push(element('p', { class: 'error' }, message.error));
  node.prepend(...parts);
}

function toolsOf(message, siblings, isLast, actions) {
  const tools = element('div', { class: 'tools' });
  if (siblings.length > 1) {
    const at = siblings.indexOf(message);
    const version = (label, step, name) =>
      button(label, () => actions.choose(siblings[(at + step + siblings.length) % siblings.length], name), name);
    tools.append(version('‹', -1, 'Version before'), `${at + 1}/${siblings.length}`, version('›', 1, 'Version after'));
  }
  tools.append(button('Copy', () => actions.copy(message.content)));
  tools.append(button('Edit', () => actions.edit(message)));
  if (message.role === 'assistant') {
    tools.append(button('Regenerate', () => actions.again(message)));
    // Of an empty answer there is nothing to continue.
    if (isLast && message.content !== '') tools.append(button('Continue', () => actions.goOn(message)));
  } else if (isLast) tools.append(button('Answer', () => actions.again(message)));
  return tools;
}

/** Puts a field in the place of a message's text. After `cancel` the message is to be drawn again. */
export function editMessage(message, { save, cancel }) {
  const node = nodeOf(message.id);
  const field = element('textarea', { class: 'editor', value: message.content, 'aria-label': 'Edit the message' });
  const close = () => {
    drawn.delete(node);
    cancel();
  };
  const bar = element(
    'div',
    { class: 'tools' },
    button(message.role === 'user' ? 'Send' : 'Save', () => save(field.value)),
    button('Cancel', close),
  );
  const edit = element('div', { class: 'edit' }, field, bar);
  edit.addEventListener('keydown', (event) => {
    if (event.key !== 'Escape' || event.isComposing) return;
    event.preventDefault();
    close();
  });
  node.replaceChildren(edit);
  field.focus();
}

export function conversationNode(conversation, isCurrent, { open, rename, remove }) {
  const title = element(
    'button',
    { type: 'button', name: 'Open', class: 'title', onclick: open, ondblclick: rename, title: conversation.title },
    conversation.title,
  );
  const node = element(
    'li',
    { class: isCurrent ? 'current' : '' },
    title,
    button('✎', rename, 'Rename'),
    button('✕', remove, 'Delete'),
  );
  node.dataset.id = conversation.id;
  return node;
}

function nodeOf(id) {
  return document.querySelector(`article[data-id="${CSS.escape(id)}"]`);
}

/** A button of a message or a conversation, by what it does. */
export function buttonOf(id, name) {
  return document.querySelector(`[data-id="${CSS.escape(id)}"] button[name="${name}"]`);
}

/** Draws, and calls `restore(id, name)` when the button that had the focus is gone. @returns what `draw` returns */
export function keepingFocus(draw, restore) {
  const held = document.activeElement;
  const id = held?.closest('[data-id]')?.dataset.id;
  const result = draw();
  if (id !== undefined && !held.isConnected) restore(id, held.name);
  return result;
}

/** Puts a text on the clipboard; over plain HTTP browsers offer only the old way. @returns whether it is there */
export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const held = document.activeElement;
    const field = element('textarea', { class: 'to-copy', value: text, readOnly: true });
    document.body.append(field);
    field.select();
    const isDone = document.execCommand('copy');
    field.remove();
    held?.focus();
    return isDone;
  }
}
