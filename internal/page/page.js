// The web page's entry point.
import { byID } from './dom.js';
import { requestDialog, updateIdentity, tokenDialog } from './requests.js';
import { connect, start } from './source.js';
import { renderAll, tick, init } from './view.js';

init({ request: requestDialog, connect });
byID('operator').addEventListener('click', tokenDialog);
start(() => {
  renderAll();
  updateIdentity();
});
setInterval(tick, 250);
