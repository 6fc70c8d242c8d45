/** Figures in the text format of Prometheus, written out by hand: counters, gauges read when asked, histograms. */

type Labels = Readonly<Record<string, string | number>>;

/** Seconds. */
const BUCKETS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60];

class Counter {
  private readonly values = new Map<string, number>();

  constructor(
    readonly name: string,
    readonly help: string,
  ) {}

  add(amount = 1, labels: Labels = {}): void {
    const key = formatLabels(labels);
    this.values.set(key, (this.values.get(key) ?? 0) + amount);
  }

  total(): number {
    return [...this.values.values()].reduce((sum, value) => sum + value, 0);
  }

  lines(): string[] {
    const lines = [...this.values].map(([labels, value]) => `${this.name}${labels} ${value}`);
    return [...header(this, 'counter'), ...(lines.length > 0 ? lines : [`${this.name} 0`])];
  }
}

class Histogram {
  private readonly counts = new Array<number>(BUCKETS.length).fill(0);
  private count = 0;
  private sum = 0;

  constructor(
    readonly name: string,
    readonly help: string,
  ) {}

  /** @param seconds how long it took */
  observe(seconds: number): void {
    this.count++;
    this.sum += seconds;
    for (let i = 0; i < BUCKETS.length; i++) if (seconds <= BUCKETS[i]) this.counts[i]++;
  }

  lines(): string[] {
    const { name, count, sum } = this;
    const buckets = BUCKETS.map((bound, i) => `${name}_bucket{le="${bound}"} ${this.counts[i]}`);
    return [
      ...header(this, 'histogram'),
      ...buckets,
      `${name}_bucket{le="+Inf"} ${count}`,
      `${name}_sum ${sum}`,
      `${name}_count ${count}`,
    ];
  }
}

export interface Gauge {
  name: string;
  help: string;
  values: readonly { labels?: Labels; value: number }[];
}

/** What a server counts. Labels are routes, statuses and names of its models: no client can make more of them. */
export class Metrics {
  readonly requests = new Counter('candle_requests_total', 'Requests by route and status');
  readonly promptTokens = new Counter('candle_prompt_tokens_total', 'Tokens of prompts, by model');
  readonly tokens = new Counter('candle_generated_tokens_total', 'Tokens generated, by model');
  readonly finished = new Counter('candle_sequences_total', 'Sequences by how they ended');
  readonly waited = new Histogram('candle_queue_seconds', 'From the request to its slot');
  readonly firstToken = new Histogram('candle_first_token_seconds', 'From the request to its first token');
  readonly betweenTokens = new Histogram('candle_between_tokens_seconds', 'From one token of a sequence to the next');
  readonly duration = new Histogram('candle_request_seconds', 'From the request to the end of its answer');

  text(gauges: readonly Gauge[]): string {
    const { requests, promptTokens, tokens, finished, waited, firstToken, betweenTokens, duration } = this;
    const all = [requests, promptTokens, tokens, finished, waited, firstToken, betweenTokens, duration];
    const lines = all.flatMap((metric) => metric.lines());
    for (const gauge of gauges) {
      lines.push(...header(gauge, 'gauge'));
      for (const { labels = {}, value } of gauge.values) lines.push(`${gauge.name}${formatLabels(labels)} ${value}`);
    }
    return `${lines.join('\n')}\n`;
  }
}

function header({ name, help }: { name: string; help: string }, type: string): string[] {
  return [`# HELP ${name} ${help}`, `# TYPE ${name} ${type}`];
}

function formatLabels(labels: Labels): string {
  const pairs = Object.entries(labels).map(([name, value]) => {
    const escaped = String(value).replace(/\\/g, '\\\\').replace(/"/g, '\\"').replace(/\n/g, '\\n');
    return `${name}="${escaped}"`;
  });
  return pairs.length === 0 ? '' : `{${pairs.join(',')}}`;
}
