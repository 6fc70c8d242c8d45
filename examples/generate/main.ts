// Streams text from a GGUF model, three ways: greedy, sampled with a seed, and stopped after a deadline.
// Run from the repository: tsx examples/generate/main.ts [model.gguf] [device]
import { Device, loadModel } from '@x/candle';

async function main(): Promise<void> {
  const [path = 'models/tiny-tales/tiny-tales-q8_0.gguf', name] = process.argv.slice(2);
  const device = name ? Device.parse(name) : await Device.auto();
  using model = await loadModel(path, { device });

  console.log(`# greedy, on ${device}`);
  for await (const piece of model.generate('Once upon a time', { maxTokens: 32, temperature: 0 })) {
    process.stdout.write(piece.text);
  }

  console.log('\n\n# sampled: the same seed gives the same tale');
  const options = { maxTokens: 32, temperature: 0.8, topP: 0.95, repetitionPenalty: 1.1, seed: 42 };
  for await (const piece of model.generate('The old king', options)) process.stdout.write(piece.text);

  console.log('\n\n# until a deadline');
  const generation = model.generate('In the forest', { maxTokens: 400, signal: AbortSignal.timeout(300) });
  try {
    for await (const piece of generation) process.stdout.write(piece.text);
  } catch (error) {
    if ((error as Error).name !== 'TimeoutError') throw error;
  }
  console.log(`\n\n${generation.stats.tokens} tokens, ${generation.stats.decodeTokensPerSecond.toFixed(0)} tokens/s`);
}

void main();
