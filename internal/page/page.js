// The page: one screen for the night shift.
import { byID } from './dom.js';
import { orderDialog, permission, tokenDialog } from './orders.js';
import { connect, start } from './source.js';
import { drawAll, tick, view } from './view.js';

view({ order: orderDialog, connect });
byID('permission').addEventListener('click', tokenDialog);
start(() => {
  drawAll();
  permission();
});
setInterval(tick, 250);
