// The web page's entry point. With several groups it shows them all, or the one that the address names. The name of a group with slots
// shows its slots.
import { byID, el, setText } from './dom.js';
import { startGrid } from './grid.js';
import { requestDialog, updateIdentity, tokenDialog } from './requests.js';
import { slotOf, startSlots } from './slots.js';
import { connect, fetchJSON, start } from './source.js';
import { renderAll, tick, init } from './view.js';

const retryDelay = 2000; // ms

function showGroup(name) {
  byID('group-page').hidden = false;
  init({ request: requestDialog, connect });
  start(name, () => {
    renderAll();
    updateIdentity();
  });
  startSlots(name);
  setInterval(tick, 250);
}

function showAll(body, only) {
  byID('grid-page').hidden = false;
  const skip = byID('skip');
  skip.href = '#grid-page';
  setText(skip, 'Skip to the groups');
  startGrid(body, only);
}

function linkToAll() {
  byID('all-groups').append(el('a', { href: './' }, 'All groups'));
}

async function begin() {
  byID('operator').hidden = false;
  const name = new URLSearchParams(location.search).get('group') || '';
  try {
    const { body } = await fetchJSON('v1/groups');
    if (body.groups.some((g) => (slotOf(g.group) || {}).group === name)) {
      linkToAll();
      return showAll(body, name);
    }
    if (!name) return body.groups.length === 1 ? showGroup(body.groups[0].group) : showAll(body, '');
  } catch {
    if (!name) return setTimeout(begin, retryDelay);
    // The page of a group says that there is no response.
  }
  linkToAll();
  showGroup(name);
}

byID('operator').addEventListener('click', tokenDialog);
begin();
