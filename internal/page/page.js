// The page: one screen for the night shift.
import { byID } from './dom.js';
import { requestDialog, permission, tokenDialog } from './requests.js';
import { connect, start } from './source.js';
import { drawAll, tick, view } from './view.js';

view({ request: requestDialog, connect });
byID('permission').addEventListener('click', tokenDialog);
start(() => {
  drawAll();
  permission();
});
setInterval(tick, 250);
