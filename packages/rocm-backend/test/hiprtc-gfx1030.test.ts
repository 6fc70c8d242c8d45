/**
 * Every module for a wave of 32 lanes, with less optimisation than kernels are given, and once rather than before and behind the
 * device libraries: up to a quarter less time. A file a target, so that the compilations run side by side.
 */
import { ALL_MODULES } from '@x/kernels';
import { hiprtcSuite } from './hiprtc';

hiprtcSuite('gfx1030', 'rdna2', ALL_MODULES, ['-O1', '-Xclang', '-disable-llvm-passes']);
