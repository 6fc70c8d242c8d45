/** For a wave of 64 lanes, the modules whose code depends on it or on matrix units, but those that take half a minute each. */
import { AFFINE, ATTENTION, FILL, GEMM } from '@x/kernels';
import { hiprtcSuite } from './hiprtc';

hiprtcSuite('gfx90a', 'cdna', [AFFINE, FILL, ATTENTION, GEMM]);
