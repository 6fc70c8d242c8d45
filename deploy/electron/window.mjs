const output = document.querySelector('p');
document.querySelector('form').addEventListener('submit', (event) => {
  event.preventDefault();
  output.textContent = '';
  window.candle.write(new FormData(event.target).get('prompt'));
});
window.candle.onPiece(({ text, error }) => {
  output.textContent += text ?? error;
});
