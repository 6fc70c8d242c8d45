/** An OpenAI-compatible server over models in this process. */
export { createServer, type RequestEnvironment, type Server, type ServerStats } from './create-server';
export { ApiError, type ApiErrorDetails, ServerError, type ServerErrorCode } from './errors';
export { nameOf as modelName } from './model-files';
export type { ModelFile, ModelSource, ModelSources } from './model-pool';
export type { LogEntry, ServerOptions } from './options';
export { type RunningServer, type ServeOptions, serve } from './serve';
