const { contextBridge, ipcRenderer } = require('electron');

contextBridge.exposeInMainWorld('candle', {
  write: (prompt) => ipcRenderer.send('write', prompt),
  onPiece: (listener) => ipcRenderer.on('piece', (_, piece) => listener(piece)),
});
