/** A graph made ready to launch: all its work enqueued by one call. */
import type { DeviceContext } from './context';
import { DeviceObject } from './device-object';
import type { HipGraph } from './graph';
import type { HipStream } from './stream';

/** A graph that may be launched any number of times: what `graph.instantiate()` gives. */
export class HipGraphExec extends DeviceObject {
  /** @internal Use `graph.instantiate()`. */
  constructor(context: DeviceContext, handle: number) {
    super(context, handle, 'graph instance', 'execDestroy');
  }

  /** Enqueues all of the graph's work, behind what `stream` was given so far. */
  launch(stream: HipStream): void {
    this.context.native.execLaunch(this.context.id, this.handle, stream.handleOn(this.context));
  }

  /** Takes over another graph's parameters. False when its shape differs: then instantiate that graph instead. */
  update(graph: HipGraph): boolean {
    return this.context.native.execUpdate(this.context.id, this.handle, graph.handleOn(this.context));
  }
}
