// The slots of a group: on the page of one slot, a line for each.
import { byID, el, render } from './dom.js';
import { table } from './parts.js';
import { fetchJSON } from './source.js';

const pollInterval = 5000; // ms

// slotOf returns the group and the slot of a name such as ingest/3, or nothing.
export function slotOf(name) {
  const [, group, slot] = /^(.*)\/([0-9]+)$/.exec(name) || [];
  return group && { group, slot: Number(slot) };
}

// compareNames orders groups by name, and slots by number.
export const compareNames = new Intl.Collator('en', { numeric: true }).compare;

// startSlots keeps the list of slots up to date if name is that of a slot.
export function startSlots(name) {
  const current = slotOf(name);
  if (!current) return;
  const poll = async () => {
    if (!document.hidden) await fetchJSON('v1/groups?members=1').then(({ body }) => body.groups && renderSlots(body.groups, current)).catch(() => {}); // the banner says if there is no response
    setTimeout(poll, pollInterval);
  };
  poll();
}

const stateTexts = { READY: 'leads', PROGRESS: 'takes over', WAITING: 'elected', NONE: 'no leader' };

function renderSlots(groups, current) {
  const slots = groups.filter((g) => (slotOf(g.group) || {}).group === current.group).sort((a, b) => compareNames(a.group, b.group)).map((g) => {
    const read = g.read || {};
    const leader = (read.members || []).find((m) => m.node === read.leader);
    return { group: g.group, slot: slotOf(g.group).slot, leader: read.leader || '', state: read.state || 'UNKNOWN', problems: (read.problems || []).length, here: Boolean(leader) && g.leads };
  });
  byID('slots').hidden = slots.length < 2;
  render(byID('slots-body'), [slots, current], () => table('slots', `The slots of ${current.group}`, ['Slot', 'Leader', 'State', 'Problems'], slots.map((s) => [
    s.slot === current.slot ? el('strong', { 'aria-current': 'page' }, String(s.slot)) : el('a', { href: `?group=${encodeURIComponent(s.group)}` }, String(s.slot)),
    s.leader ? el('strong', null, s.leader) : el('strong', { class: 'bad' }, 'none'),
    el('span', { class: s.state === 'READY' ? null : 'bad' }, stateTexts[s.state] || 'unknown'),
    s.problems ? String(s.problems) : '–'])));
}
