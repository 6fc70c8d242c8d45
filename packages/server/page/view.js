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
  return element('button', { type: 'button', onclick, title, 'aria-label': title }, label);
}

/** A message with its tools. @param actions `{ edit, again, goOn, choose, copy }`; none while an answer is being written */
export function messageNode(message, { siblings, isLast, actions }) {
  const node = element('article', { class: `message ${message.role}` });
  node.dataset.id = message.id;
  fill(node, message);
  if (actions) node.append(toolsOf(message, siblings, isLast, actions));
  return node;
}

/** Writes reasoning, text and error anew: while an answer comes, and at its end. */
export function fill(node, message) {
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
    const go = (step) => () => actions.choose(siblings[(at + step + siblings.length) % siblings.length]);
    tools.append(
      button('‹', go(-1), 'Version before'),
      `${at + 1}/${siblings.length}`,
      button('›', go(1), 'Version after'),
    );
  }
  tools.append(button('Copy', () => navigator.clipboard.writeText(message.content)));
  tools.append(button('Edit', () => actions.edit(message)));
  if (message.role === 'assistant') {
    tools.append(button('Regenerate', () => actions.again(message)));
    if (isLast) tools.append(button('Continue', () => actions.goOn(message)));
  } else if (isLast) tools.append(button('Answer', () => actions.again(message)));
  return tools;
}

/** Puts a field in the place of a message's text. */
export function editNode(node, message, { save, cancel }) {
  const field = element('textarea', { class: 'editor', value: message.content, 'aria-label': 'Edit the message' });
  const label = message.role === 'user' ? 'Send' : 'Save';
  const bar = element(
    'div',
    { class: 'tools' },
    button(label, () => save(field.value)),
    button('Cancel', cancel),
  );
  node.replaceChildren(field, bar);
  field.focus();
}

export function conversationNode(conversation, isCurrent, { open, rename, remove }) {
  const title = element(
    'button',
    { type: 'button', class: 'title', onclick: open, ondblclick: rename, title: conversation.title },
    conversation.title,
  );
  return element(
    'li',
    { class: isCurrent ? 'current' : '' },
    title,
    button('✎', rename, 'Rename'),
    button('✕', remove, 'Delete'),
  );
}
