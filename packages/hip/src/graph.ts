/** Work captured from a stream. It is a description; {@link HipGraph.instantiate} makes what can be launched. */
import type { DeviceContext } from './context';
import { DeviceObject } from './device-object';
import { HipGraphExec } from './graph-exec';

/** Captured work that was not launched: what `stream.endCapture()` gives, for any number of {@link instantiate}. */
export class HipGraph extends DeviceObject {
  /** @internal Use `stream.endCapture()`. */
  constructor(context: DeviceContext, handle: number) {
    super(context, handle, 'graph', 'graphDestroy');
  }

  /** The graph may be disposed afterwards. Modules and buffers it uses must outlive the instance. */
  instantiate(): HipGraphExec {
    const exec = this.context.native.graphInstantiate(this.context.id, this.handle);
    return new HipGraphExec(this.context, exec);
  }
}
