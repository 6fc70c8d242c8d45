'use client';
import { useState } from 'react';

export default function Page() {
  const [text, setText] = useState('');
  const write = async () => {
    const body = JSON.stringify({ model: 'model', prompt: 'Once upon a time', max_tokens: 64 });
    const headers = { 'content-type': 'application/json' };
    const response = await fetch('/v1/completions', { method: 'POST', headers, body });
    const answer = await response.json();
    setText(answer.choices?.[0].text ?? answer.error.message);
  };
  return (
    <main>
      <button type="button" onClick={write}>
        Write
      </button>
      <p>{text}</p>
    </main>
  );
}
