/** @type {import('next').NextConfig} */
export default {
  // Packages with files beside them, which a bundle does not hold.
  serverExternalPackages: ['@x/candle', '@x/hip', '@x/kernels', '@x/rocm-backend', '@x/server'],
  // For a server that is copied without node_modules: kernels and the page are read by name, which tracing does not see.
  output: 'standalone',
  outputFileTracingIncludes: {
    '/v1/[...path]': ['node_modules/@x/kernels-host-x64/**/*', 'node_modules/@x/hip-linux-x64-gnu/**/*'],
  },
};
