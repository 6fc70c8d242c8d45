/** The program of a process with a rank above 0, for tests: `node follow.mjs MODEL` of a bundle, in the environment of its group. */
import '@x/rocm-backend';
import { followModel, processGroup } from '../src';

followModel(process.argv[2], processGroup()!, { device: 'cpu' }).then(
  () => console.log('ended'),
  (error) => {
    console.log(JSON.stringify({ name: error.name, code: error.code, rank: error.rank, message: error.message }));
    process.exitCode = 1;
  },
);
