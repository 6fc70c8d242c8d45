/** The page: one conversation at a time, its answers, and what the buttons do. */
import { answer, listModels } from './chat.js';
import * as store from './store.js';
import { conversationNode, editNode, element, fill, messageNode } from './view.js';

const $ = (id) => document.getElementById(id);
const settings = store.loadSettings();
let conversations = store.loadConversations();
let current = conversations[0] ?? store.newConversation();
/** The answer that is being written. */
let running = null;

function notice(text) {
  $('notice').textContent = text;
  $('notice').hidden = text === '';
}

function save() {
  if (!conversations.includes(current)) conversations.unshift(current);
  conversations.sort((a, b) => b.changed - a.changed);
  if (!store.saveConversation(current)) notice('This browser has no more room; export and delete old conversations.');
  showConversations();
}

// What the reader sees: the end follows the text only while the reader is there.

const scroller = $('scroller');
let follows = true;
const isAtEnd = () => scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < 40;
function toEnd() {
  follows = true;
  scroller.scrollTop = scroller.scrollHeight;
  $('down').hidden = true;
}
scroller.addEventListener('scroll', () => {
  follows = isAtEnd();
  $('down').hidden = follows;
});
$('down').addEventListener('click', toEnd);

function show() {
  const path = store.pathOf(current);
  const nodes = path.map((message, i) =>
    messageNode(message, {
      siblings: store.siblingsOf(current, message),
      isLast: i === path.length - 1,
      actions: running ? undefined : { edit, again, goOn, choose },
    }),
  );
  $('messages').replaceChildren(...nodes);
  if (nodes.length === 0) $('messages').append(element('p', { class: 'welcome' }, 'Write a message to begin.'));
  $('send').hidden = running !== null;
  $('stop').hidden = running === null;
  document.title = current.leaf === null ? 'candle' : `${current.title} · candle`;
  if (follows) toEnd();
}

function showConversations() {
  const nodes = conversations.map((one) =>
    conversationNode(one, one === current, {
      open: () => open(one),
      rename: () => rename(one),
      remove: () => remove(one),
    }),
  );
  $('conversations').replaceChildren(...nodes);
}

function open(conversation) {
  stop();
  current = conversation;
  notice('');
  document.body.classList.remove('showing');
  show();
  showConversations();
  toEnd();
}

function rename(conversation) {
  const title = prompt('Title of the conversation', conversation.title);
  if (title === null || title.trim() === '') return;
  conversation.title = title.trim().slice(0, 200);
  store.saveConversation(conversation);
  showConversations();
}

function remove(conversation) {
  if (!confirm(`Delete "${conversation.title}"?`)) return;
  store.removeConversation(conversation);
  conversations = conversations.filter((one) => one !== conversation);
  if (conversation === current) open(conversations[0] ?? store.newConversation());
  else showConversations();
}

// Answers.

function send(text) {
  if (running || text.trim() === '') return;
  if (current.leaf === null) current.title = text.trim().split('\n')[0].slice(0, 60);
  store.append(current, current.leaf, 'user', text);
  toEnd();
  generate(store.append(current, current.leaf, 'assistant', ''), false);
}

/** A new answer beside an old one, or to the last message of the user. */
function again(message) {
  if (running) return;
  const parent = message.role === 'assistant' ? message.parent : message.id;
  generate(store.append(current, parent, 'assistant', ''), false);
}

function goOn(message) {
  if (!running) generate(message, true);
}

function choose(message) {
  store.choose(current, message);
  save();
  show();
}

function edit(message) {
  const node = document.querySelector(`[data-id="${message.id}"]`);
  const finish = (text) => {
    const copy = store.append(current, message.parent, message.role, text);
    if (message.role === 'user') {
      generate(store.append(current, copy.id, 'assistant', ''), false);
      return;
    }
    save();
    show();
  };
  editNode(node, message, { save: finish, cancel: show });
}

async function generate(message, continueLast) {
  const controller = new AbortController();
  const conversation = current;
  const own = { controller, message };
  running = own;
  delete message.error;
  delete message.note;
  save();
  show();
  const path = store.pathOf(conversation);
  const messages = (continueLast ? path : path.slice(0, -1))
    // An answer that failed before it began is none.
    .filter(({ role, content }) => role === 'user' || content !== '')
    .map(({ role, content }) => ({ role, content }));
  let frame = 0;
  const draw = () => {
    frame = 0;
    const node = document.querySelector(`[data-id="${message.id}"]`);
    if (node) fill(node, message);
    if (follows && running === own) toEnd();
  };
  try {
    const parts = answer({ messages, settings, model: $('model').value, continueLast, signal: controller.signal });
    for await (const { content = '', reasoning = '', finish } of parts) {
      message.content += content;
      if (reasoning) message.reasoning = (message.reasoning ?? '') + reasoning;
      if (finish === 'length')
        message.note = 'The answer was cut: it reached the limit of tokens, or the context is full.';
      frame ||= requestAnimationFrame(draw);
    }
  } catch (error) {
    if (controller.signal.aborted) message.note = 'Stopped.';
    else message.error = error instanceof TypeError ? 'The server cannot be reached.' : error.message;
  }
  cancelAnimationFrame(frame);
  conversation.changed = Date.now();
  if (running === own) running = null;
  if (conversation === current) {
    save();
    show();
  } else store.saveConversation(conversation);
}

function stop() {
  running?.controller.abort();
  running = null;
}
$('stop').addEventListener('click', () => running?.controller.abort());

// The field to write in.

const input = $('input');
const isTouch = matchMedia('(pointer: coarse)').matches;
function fit() {
  input.style.height = 'auto';
  input.style.height = `${input.scrollHeight + 2}px`;
}
input.addEventListener('input', fit);
input.addEventListener('keydown', (event) => {
  if (event.key !== 'Enter' || event.shiftKey || event.isComposing || isTouch) return;
  event.preventDefault();
  $('composer').requestSubmit();
});
$('composer').addEventListener('submit', (event) => {
  event.preventDefault();
  if (running) return;
  send(input.value);
  input.value = '';
  fit();
});
document.addEventListener('keydown', (event) => {
  if (event.key === 'Escape' && !$('settings').open) running?.controller.abort();
});

// Settings and models.

const form = $('settings').querySelector('form');
$('open-settings').addEventListener('click', () => {
  for (const field of form.elements) {
    if (field.type === 'checkbox') field.checked = settings[field.name];
    else if (field.name) field.value = settings[field.name] ?? '';
  }
  $('settings').showModal();
});
$('settings').addEventListener('close', () => {
  const { system, temperature, topP, maxTokens, seed, key, thinking } = form.elements;
  const number = (field, byDefault) => (field.value === '' || !field.validity.valid ? byDefault : field.valueAsNumber);
  Object.assign(settings, {
    system: system.value,
    temperature: number(temperature, settings.temperature),
    topP: number(topP, settings.topP),
    maxTokens: number(maxTokens, null),
    seed: number(seed, null),
    thinking: thinking.checked,
  });
  const isNewKey = key.value !== settings.key;
  settings.key = key.value;
  store.saveSettings(settings);
  if (isNewKey) void showModels();
});

async function showModels() {
  try {
    const names = await listModels(settings.key);
    $('model').replaceChildren(...names.map((name) => element('option', { value: name }, name)));
    if (names.includes(settings.model)) $('model').value = settings.model;
    notice('');
  } catch (error) {
    notice(error instanceof TypeError ? 'The server cannot be reached.' : error.message);
  }
}
$('model').addEventListener('change', () => {
  settings.model = $('model').value;
  store.saveSettings(settings);
});

// The list of conversations.

$('new').addEventListener('click', () => {
  open(store.newConversation());
  input.focus();
});
$('show').addEventListener('click', () => document.body.classList.add('showing'));
$('hide').addEventListener('click', () => document.body.classList.remove('showing'));
$('shade').addEventListener('click', () => document.body.classList.remove('showing'));
$('export').addEventListener('click', () => {
  const url = URL.createObjectURL(new Blob([store.writeExport(conversations)], { type: 'application/json' }));
  element('a', { href: url, download: 'conversations.json' }).click();
  URL.revokeObjectURL(url);
});
$('import').addEventListener('click', () => $('file').click());
$('file').addEventListener('change', async () => {
  const [file] = $('file').files;
  if (!file) return;
  try {
    // Under new ids: what is here stays as it is.
    const found = store.readExport(await file.text()).map((one) => ({ ...one, id: store.newId() }));
    for (const one of found) store.saveConversation(one);
    conversations = store.loadConversations();
    open(conversations.find(({ id }) => id === found[0].id) ?? current);
  } catch (error) {
    notice(error.message);
  }
  $('file').value = '';
});

show();
showConversations();
void showModels();
if (!isTouch) input.focus();
