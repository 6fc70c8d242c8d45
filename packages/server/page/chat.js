/** Talks to the server that sent the page. */

/** Names of the models. @throws Error with the server's message */
export async function listModels(key) {
  const response = await fetch('/v1/models', { headers: headersOf(key) });
  await check(response);
  return (await response.json()).data.map(({ id }) => id);
}

/**
 * The parts of an answer: `{ content }`, `{ reasoning }`, and at the end `{ finish }`.
 * @throws Error with the server's message; an AbortError
 */
export async function* answer({ messages, settings, model, continueLast, signal }) {
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
  const response = await fetch('/v1/chat/completions', { method: 'POST', headers, body: JSON.stringify(body), signal });
  await check(response);
  for await (const event of events(response.body)) {
    if (event.error) throw new Error(event.error.message);
    const [choice] = event.choices;
    if (!choice) continue;
    const { content, reasoning_content: reasoning } = choice.delta;
    if (reasoning) yield { reasoning };
    if (content) yield { content };
    if (choice.finish_reason) yield { finish: choice.finish_reason };
  }
}

function headersOf(key) {
  return key === '' ? {} : { authorization: `Bearer ${key}` };
}

async function check(response) {
  if (response.ok) return;
  const body = await response.json().catch(() => undefined);
  throw new Error(body?.error?.message ?? `The server answered with status ${response.status}.`);
}

/** The objects of a stream of events. */
async function* events(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let text = '';
  for (;;) {
    const { done, value } = await reader.read();
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
