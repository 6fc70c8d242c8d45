// A window, and a process beside it that has the model, so that the window never waits. Addon and kernels are outside of the asar
// archive (`asarUnpack` in package.json): the system loads the one, and the others are read from plain files.
import { join } from 'node:path';
import { app, BrowserWindow, ipcMain, utilityProcess } from 'electron';

const MODEL = app.isPackaged ? join(process.resourcesPath, 'model.gguf') : join(app.getAppPath(), 'model.gguf');

app.whenReady().then(() => {
  const model = utilityProcess.fork(join(app.getAppPath(), 'model.mjs'), [MODEL]);
  const window = new BrowserWindow({
    webPreferences: { preload: join(app.getAppPath(), 'preload.cjs') },
  });
  model.on('message', (piece) => window.isDestroyed() || window.webContents.send('piece', piece));
  ipcMain.on('write', (_, prompt) => model.postMessage(prompt));
  window.loadFile('index.html');
});
app.on('window-all-closed', () => app.quit());
