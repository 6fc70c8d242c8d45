/**
 * What this machine offers: one report per platform, with the reason when it offers nothing. Mirrors nothing in candle,
 * which picks a backend at compile time (`cuda_is_available`); here all three are found at run time.
 */
import { addon } from './addon';
import { HipError, type HipErrorCode } from './errors';

/** `rocm`: AMD GPUs through libamdhip64. `cuda`: NVIDIA GPUs through libcuda. `host`: this CPU, in process. */
export type Platform = 'rocm' | 'cuda' | 'host';

/** All platforms, in the order in which a device is usually looked for. Their index is their number in the addon. */
export const PLATFORMS: readonly Platform[] = ['rocm', 'cuda', 'host'];

export interface PlatformReport {
  readonly platform: Platform;
  /** True when at least one device can be opened. */
  readonly available: boolean;
  readonly deviceCount: number;
  /** The library that was loaded; absent for the host platform and when none was found. */
  readonly library?: string;
  /** The driver's or runtime's version, as far as it says. */
  readonly version?: string;
  /** Every library path and name that was tried, in order. */
  readonly searched: readonly string[];
  /** Why there is no device: present exactly when `available` is false. */
  readonly reason?: PlatformFailure;
}

export interface PlatformFailure {
  readonly code: HipErrorCode;
  /** The driver's error name, when the driver got as far as reporting one: `hipErrorNoDevice`. */
  readonly name?: string;
  readonly message: string;
  readonly remedy: string;
}

export function platformNumber(platform: Platform): number {
  const index = PLATFORMS.indexOf(platform);
  if (index < 0) {
    throw new HipError('INVALID_ARGUMENT', `there is no platform '${platform}'. Use one of ${PLATFORMS.join(', ')}`);
  }
  return index;
}

/**
 * Reports on every platform, or on those named, whose drivers alone are loaded then. Never throws; a platform that has
 * failed is tried again at each call.
 */
export function platforms(which: readonly Platform[] = PLATFORMS): PlatformReport[] {
  return which.map(reportOn);
}

function reportOn(platform: Platform): PlatformReport {
  try {
    const found = addon().report(platformNumber(platform));
    const available = found.deviceCount > 0;
    return {
      platform,
      available,
      deviceCount: found.deviceCount,
      searched: found.searched,
      ...(found.library && { library: found.library }),
      ...(found.version && { version: found.version }),
      ...(!available && {
        reason: {
          code: found.code as HipErrorCode,
          ...(found.name && { name: found.name }),
          message: found.message,
          remedy: found.remedy,
        },
      }),
    };
  } catch (error) {
    return { platform, available: false, deviceCount: 0, searched: [], reason: failureOf(error) };
  }
}

/** @internal The reason of a report on what could not even be asked for. */
export function failureOf(error: unknown): PlatformFailure {
  const code = error instanceof HipError ? error.code : 'DRIVER_ERROR';
  const message = error instanceof Error ? error.message : String(error);
  const remedy = error instanceof HipError ? error.remedy : undefined;
  if (!remedy) return { code, message, remedy: 'Report this with the output of `candle doctor`' };
  return { code, message: message.replace(`. ${remedy}`, ''), remedy };
}
