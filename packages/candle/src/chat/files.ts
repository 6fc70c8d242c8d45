/** Chats in files: written whole or not at all, and never over a file that is something else. */
import { existsSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { CandleError } from '@x/core';
import { readJsonFile } from '@x/core/files';
import type { SavedChat } from '@x/engine';
import { UsageError } from '../output';

const LIMITS = { bytes: 64 * 2 ** 20, items: 1_000_000, depth: 128 };

/** @throws CandleError for a file that is missing or no saved chat */
export function readChat(path: string): SavedChat {
  const value = readJsonFile(path, LIMITS) as Partial<SavedChat> | null;
  if (value?.version === 1 && Array.isArray(value.messages)) return value as SavedChat;
  throw new UsageError(`${path} is no saved chat; give a file that /save wrote.`);
}

/** @throws CandleError for a path that cannot be written; UsageError for one that holds something else */
export function writeChat(path: string, chat: SavedChat): void {
  if (existsSync(path)) {
    try {
      readChat(path);
    } catch {
      throw new UsageError(`${path} is there and is no saved chat, so it is left as it is; give another name.`);
    }
  }
  const part = `${path}.${process.pid}.part`;
  try {
    writeFileSync(part, `${JSON.stringify(chat, undefined, 1)}\n`);
    renameSync(part, path);
  } catch (cause) {
    rmSync(part, { force: true });
    const message = `${path} cannot be written (${(cause as Error).message}); name a file in a folder that can be written.`;
    throw new CandleError('FILE_UNWRITABLE', message, { cause });
  }
}
