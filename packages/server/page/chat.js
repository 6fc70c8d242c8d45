/** Talks to the server that sent the page. */

const CUT = 'The connection ended before the answer did.';

/** Names of the models. @throws Error that says what is wrong */
export async function listModels(key) {
  const response = await request('/v1/models', { headers: headersOf(key) });
  return (await response.json()).data.map(({ id }) => id);
}

/**
 * The parts of an answer to the messages of a path: `{ content }`, `{ reasoning }`, and at the end `{ finish }`.
 * @throws Error that says what is wrong; an AbortError
 */
export async function* answer({ path, settings, model, continueLast, signal }) {
  const messages = path
    // An answer that failed before it began is none.
    .filter(({ role, content }) => role === 'user' || content !== '')
    .map(({ role, content }) => ({ role, content }));
  const body = {
    model,
    messages: settings.system === '' ? messages : [{ role: 'system', content: settings.system }, ...messages],
    stream: true,
    temperature: settings.temperature,
    top_p: settings.topP,
    ...(settings.maxTokens !== null && { max_tokens: settings.maxTokens }),
    ...(settings.seed !== null && { seed: settings.seed }),
    ...(!settings.thinking && { chat_template_kwargs: { enable_thinking: false } }),
    ...(continueLast && { continue_final_message: true }),
  };
  const headers = { ...headersOf(settings.key), 'content-type': 'application/json' };
  const options = { method: 'POST', headers, body: JSON.stringify(body), signal };
  const response = await request('/v1/chat/completions', options);
  let isWhole = false;
  for await (const event of events(response.body)) {
    if (event.error) throw new Error(event.error.message);
    const [choice] = event.choices;
    if (!choice) continue;
    const { content, reasoning_content: reasoning } = choice.delta;
    if (reasoning) yield { reasoning };
    if (content) yield { content };
    if (choice.finish_reason) {
      isWhole = true;
      yield { finish: choice.finish_reason };
    }
  }
  if (!isWhole) throw new Error(CUT);
}

function headersOf(key) {
  return key === '' ? {} : { authorization: `Bearer ${key}` };
}

async function request(path, options) {
  const response = await fetch(path, options).catch(failed('The server cannot be reached.'));
  if (response.ok) return response;
  const body = await response.json().catch(() => undefined);
  throw new Error(body?.error?.message ?? `The server answered with status ${response.status}.`);
}

/** Says what a browser calls a TypeError, each in its own words. */
function failed(what) {
  return (error) => {
    throw error instanceof TypeError ? new Error(what) : error;
  };
}

/** The objects of a stream of events. */
async function* events(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let text = '';
  for (;;) {
    const { done, value } = await reader.read().catch(failed(CUT));
    if (done) return;
    text += value;
    const lines = text.split('\n');
    text = lines.pop();
    for (const line of lines) {
      const data = line.startsWith('data: ') ? line.slice(6) : '';
      if (data !== '' && data !== '[DONE]') yield JSON.parse(data);
    }
  }
}
