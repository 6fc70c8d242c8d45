/** For a wave of 64 lanes, all but the two modules that take half a minute each. */
import { ALL_MODULES, QUANTIZED, REDUCE } from '@x/kernels';
import { hiprtcSuite } from './hiprtc';

hiprtcSuite(
  'gfx90a',
  64,
  ALL_MODULES.filter((module) => module !== QUANTIZED && module !== REDUCE),
);
