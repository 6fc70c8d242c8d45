/**
 * What the objects of one device share: the addon, the device's number, and the launch buffer with its views. Internal to
 * the package; the public face is {@link HipDevice}.
 */
import type { NativeAddon, NativeDevice } from './addon';
import { disposed, HipError } from './errors';
import type { Platform } from './platforms';

export class DeviceContext {
  readonly native: NativeAddon;
  readonly platform: Platform;
  readonly ordinal: number;
  /** The device's number in the addon. */
  readonly id: number;
  readonly launch: () => void;
  readonly words: Uint32Array;
  readonly bytes: Uint8Array;
  readonly halves: Uint16Array;
  readonly floats: Float32Array;
  readonly doubles: Float64Array;
  /** Where the packed arguments begin in the launch buffer. */
  readonly argsOffset: number;
  disposed = false;
  /** The number of the stream used where none is given. */
  stream = 0;

  constructor(native: NativeAddon, platform: Platform, ordinal: number, device: NativeDevice) {
    this.native = native;
    this.platform = platform;
    this.ordinal = ordinal;
    this.id = device.id;
    this.launch = device.launch;
    this.argsOffset = native.launchArgsOffset;
    this.words = new Uint32Array(device.launchBuffer);
    this.bytes = new Uint8Array(device.launchBuffer);
    this.halves = new Uint16Array(device.launchBuffer);
    this.floats = new Float32Array(device.launchBuffer);
    this.doubles = new Float64Array(device.launchBuffer);
  }

  /** Throws when the device is gone, or when `owner` (an object of this device) is. */
  check(ownerDisposed = false, what = ''): void {
    if (this.disposed) throw disposed(`${this.platform} device ${this.ordinal}`, this.platform);
    if (ownerDisposed) throw disposed(what, this.platform);
  }

  /** Throws unless the other object belongs to this device. */
  same(other: DeviceContext, what: string): void {
    if (other === this) return;
    throw new HipError(
      'INVALID_ARGUMENT',
      `the ${what} belongs to ${other.platform} device ${other.ordinal}, not to ${this.platform} device ${this.ordinal} ` +
        'as it was opened here. Create it on this device',
      { platform: this.platform },
    );
  }
}
