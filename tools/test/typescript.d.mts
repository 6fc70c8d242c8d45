/** Whether this Node can import TypeScript by its own loader. */
export const available: boolean;
/** Translates what is new or has changed. */
export function prepare(): Promise<void>;
