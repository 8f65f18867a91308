// The page: one screen for the night shift.
import { connect, start } from './source.js';
import { drawAll, tick, view } from './view.js';

view({ order: null, connect });
start(drawAll);
setInterval(tick, 250);
