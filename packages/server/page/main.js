/** The page: one conversation at a time, its answers, and what the buttons do. */
import { answer, listModels } from './chat.js';
import * as store from './store.js';
import * as view from './view.js';

/** How often an answer is stored while it is written. */
const KEEP_MS = 1000;
const FULL = 'This browser has no more room; export and delete old conversations.';
const NOT_KEPT = 'This browser keeps nothing for this page: conversations are gone when it is closed.';
const DELETED = 'Another tab deleted this conversation; it comes back when you write here.';
const UNFINISHED = 'This answer is not complete: its page was closed, or is still writing it.';

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

/** Stores a conversation. An answer that is being written is stored as one that is not complete. */
function keep(conversation) {
  const message = conversation === current ? running?.message : undefined;
  if (message) {
    message.note = UNFINISHED;
    store.touch(message);
  }
  if (!store.saveConversation(conversation)) notice(FULL);
  if (message) delete message.note;
}

function save() {
  if (!conversations.includes(current)) conversations.push(current);
  keep(current);
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

/** To the button of a message or a conversation, or to where one writes. */
function focusOn(id, name) {
  const button = view.buttonOf(id, name) ?? (running ? $('stop') : input);
  // On a phone a field with the focus brings up the keyboard.
  if (button !== input || !isTouch) button.focus({ preventScroll: true });
}

function show() {
  const path = store.pathOf(current);
  const messages = $('messages');
  // A screen reader reads what is new when it is all there.
  messages.setAttribute('aria-busy', running !== null);
  messages.classList.toggle('running', running !== null);
  const actions = { edit, again, goOn, choose, copy };
  const isWhole = view.keepingFocus(() => view.drawMessages(messages, path, store.byParent(current), actions), focusOn);
  if (!isWhole) {
    messages.setAttribute('aria-busy', true);
    requestAnimationFrame(showMore);
  }
  if (path.length === 0) messages.append(view.element('p', { class: 'welcome' }, 'Write a message to begin.'));
  $('send').hidden = running !== null;
  $('stop').hidden = running === null;
  document.title = current.leaf === null ? 'candle' : `${current.title} · candle`;
  if (follows) toEnd();
}

/** Adds messages above; what the reader sees stays where it is. */
function showMore() {
  const below = scroller.scrollHeight - scroller.scrollTop;
  show();
  if (!follows) scroller.scrollTop = scroller.scrollHeight - below;
}

function showConversations() {
  conversations.sort((a, b) => b.changed - a.changed);
  const nodes = conversations.map((one) =>
    view.conversationNode(one, one === current, {
      open: () => open(one),
      rename: () => rename(one),
      remove: () => remove(one),
    }),
  );
  view.keepingFocus(() => $('conversations').replaceChildren(...nodes), focusOn);
}

function open(conversation) {
  stop();
  running = null;
  current = conversation;
  notice('');
  hideSidebar();
  show();
  showConversations();
  toEnd();
}

function rename(conversation) {
  const title = prompt('Title of the conversation', conversation.title);
  if (title === null || title.trim() === '') return;
  conversation.title = title.trim().slice(0, 200);
  keep(conversation);
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

function choose(message, name) {
  store.choose(current, message);
  // One that another tab deleted does not come back by being looked at.
  if (conversations.includes(current)) save();
  show();
  focusOn(message.id, name);
}

function edit(message) {
  view.editMessage(message, {
    save(text) {
      if (running) return;
      const copy = store.append(current, message.parent, message.role, text);
      if (message.role === 'user') {
        generate(store.append(current, copy.id, 'assistant', ''), false);
        return;
      }
      save();
      show();
      focusOn(copy.id, 'Edit');
    },
    cancel() {
      show();
      focusOn(message.id, 'Edit');
    },
  });
}

async function copy(text) {
  const isDone = await view.copyText(text);
  if (!isDone) notice('This browser does not let the page copy; mark the text and copy it.');
  return isDone;
}
$('messages').addEventListener('click', async ({ target }) => {
  if (!target.matches('.block .head button')) return;
  if (await copy(target.closest('.block').querySelector('code').textContent)) target.textContent = 'Copied';
});

async function generate(message, continueLast) {
  const controller = new AbortController();
  const conversation = current;
  const own = { controller, message };
  // While the answer is written, its buttons are hidden: the focus waits on the one that stops it.
  const begunBy = $('messages').contains(document.activeElement) ? document.activeElement.name : undefined;
  running = own;
  delete message.error;
  delete message.note;
  save();
  show();
  if (begunBy !== undefined) $('stop').focus();
  const path = store.pathOf(conversation).slice(0, continueLast ? undefined : -1);
  let frame = 0;
  const draw = () => {
    frame = 0;
    view.rewrite(message);
    if (follows && running === own) toEnd();
  };
  let note;
  let keptAt = Date.now();
  try {
    const parts = answer({ path, settings, model: $('model').value, continueLast, signal: controller.signal });
    for await (const { content = '', reasoning = '', finish } of parts) {
      message.content += content;
      if (reasoning) message.reasoning = (message.reasoning ?? '') + reasoning;
      if (finish === 'length') note = 'The answer was cut: it reached the limit of tokens, or the context is full.';
      if (Date.now() - keptAt > KEEP_MS) {
        keep(conversation);
        keptAt = Date.now();
      }
      frame ||= requestAnimationFrame(draw);
    }
  } catch (error) {
    if (controller.signal.aborted) note = controller.signal.reason;
    else message.error = error.message;
  }
  cancelAnimationFrame(frame);
  if (note) message.note = note;
  store.touch(message);
  conversation.changed = Date.now();
  if (running === own) running = null;
  // One that was deleted meanwhile stays so.
  if (conversations.includes(conversation)) {
    keep(conversation);
    showConversations();
  }
  if (conversation !== current) return;
  const isStopHeld = document.activeElement === $('stop');
  show();
  if (isStopHeld) focusOn(message.id, begunBy);
}

/** @param why is said below what came */
function stop(why = 'Stopped.') {
  running?.controller.abort(why);
}
$('stop').addEventListener('click', () => stop());

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
  if (event.key !== 'Escape' || event.defaultPrevented || event.isComposing || $('settings').open) return;
  if (!hideSidebar()) stop();
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
  keepSettings();
  if (isNewKey) void showModels();
});

let hasModels = true;
async function showModels() {
  try {
    const names = await listModels(settings.key);
    $('model').replaceChildren(...names.map((name) => view.element('option', { value: name }, name)));
    if (names.includes(settings.model)) $('model').value = settings.model;
    if (!hasModels) notice('');
    hasModels = true;
  } catch (error) {
    hasModels = false;
    notice(error.message);
  }
}
$('model').addEventListener('change', () => {
  settings.model = $('model').value;
  keepSettings();
});
function keepSettings() {
  if (!store.saveSettings(settings)) notice(FULL);
}

// The list of conversations.

$('new').addEventListener('click', () => {
  open(store.newConversation());
  input.focus();
});
$('show').addEventListener('click', () => {
  document.body.classList.add('showing');
  $('hide').focus();
});
/** @returns whether a small screen showed it */
function hideSidebar() {
  if (!document.body.classList.contains('showing')) return false;
  document.body.classList.remove('showing');
  $('show').focus();
  return true;
}
for (const id of ['hide', 'shade']) $(id).addEventListener('click', hideSidebar);
$('export').addEventListener('click', () => {
  const url = URL.createObjectURL(new Blob([store.writeExport(conversations)], { type: 'application/json' }));
  view.element('a', { href: url, download: 'conversations.json' }).click();
  URL.revokeObjectURL(url);
});
$('import').addEventListener('click', () => $('file').click());
$('file').addEventListener('change', async () => {
  const [file] = $('file').files;
  if (!file) return;
  try {
    // Under new ids: what is here stays as it is.
    const found = store.readExport(await file.text()).map((one) => ({ ...one, id: store.newId() }));
    conversations.push(...found);
    open(found[0]);
    for (const one of found) keep(one);
  } catch (error) {
    notice(error.message);
  }
  $('file').value = '';
});

// What happens to the page: it is closed, or another tab changes what is kept.

addEventListener('visibilitychange', () => running && keep(current));
addEventListener('pagehide', () => {
  if (running) keep(current);
  stop(UNFINISHED);
});

store.onOtherTab({
  settings: () => Object.assign(settings, store.loadSettings()),
  conversation(id) {
    const kept = store.loadConversation(id);
    const own = [current, ...conversations].find((one) => one.id === id);
    const others = conversations.filter((one) => one !== own);
    if (kept) {
      // What is written here stays as it is.
      if (running && own === current) store.touch(running.message);
      if (own) store.adopt(own, kept);
      conversations = [...others, own ?? kept];
    } else {
      conversations = others;
      if (own === current) {
        stop();
        notice(DELETED);
      }
    }
    if (own === current) show();
    showConversations();
  },
});

if (!store.isKept) notice(NOT_KEPT);
show();
showConversations();
void showModels();
if (!isTouch) input.focus();
