/** What is no HTTP request, or is cut: Node's parser meets it, and no handler does. */
import type { Server as HttpServer } from 'node:http';
import type { Socket } from 'node:net';
import { ApiError } from './errors';

/** How long an answered connection is read on. */
const READ_ON_MS = 1000;
/** Of `STATUS_CODES`: importing `node:http` takes 0.1 s. */
const REASONS: Readonly<Record<number, string>> = {
  400: 'Bad Request',
  408: 'Request Timeout',
  431: 'Request Header Fields Too Large',
};

/** Answers what the parser refuses with the bodies that other errors have; Node's own answers have none. */
export function answerBrokenRequests(http: HttpServer, maxHeaderBytes: number): void {
  const answering = new WeakSet<Socket>();
  http.on('request', ({ socket }, response) => {
    answering.add(socket);
    response.once('close', () => answering.delete(socket));
  });
  http.on('clientError', (cause: NodeJS.ErrnoException, socket: Socket) => {
    // An answer in the middle of another one would be read as a part of it.
    if (cause.code === 'ECONNRESET' || !socket.writable || answering.has(socket)) {
      socket.destroy();
      return;
    }
    socket.end(written(refusal(cause, maxHeaderBytes)));
    // What is still on its way is read and dropped: a connection that is closed before that loses the answer.
    socket.removeAllListeners('data').resume();
    const drop = setTimeout(() => socket.destroy(), READ_ON_MS);
    socket.once('close', () => clearTimeout(drop));
  });
}

function refusal({ code, message }: NodeJS.ErrnoException, maxHeaderBytes: number): ApiError {
  if (code === 'HPE_HEADER_OVERFLOW')
    return new ApiError(431, `The headers are larger than ${maxHeaderBytes} bytes; send less.`);
  if (code === 'ERR_HTTP_REQUEST_TIMEOUT') return new ApiError(408, 'The request did not come in time; send it whole.');
  return new ApiError(400, `This is no HTTP request that can be read (${message}).`);
}

function written(error: ApiError): string {
  const body = JSON.stringify(error.body());
  const headers = [
    `HTTP/1.1 ${error.status} ${REASONS[error.status]}`,
    'connection: close',
    'content-type: application/json; charset=utf-8',
    `content-length: ${Buffer.byteLength(body)}`,
    'x-should-retry: false',
  ];
  return `${headers.join('\r\n')}\r\n\r\n${body}`;
}
