// The grid of all groups of a daemon: a row for each group, a column for each host. It polls the daemon, which reads the members of
// the groups from time to time.
import { elapsed, formatTime, parseDuration, timestamp } from './clock.js';
import { byID, el, render, renderList, setText } from './dom.js';
import { hostDialog } from './requests.js';
import { compareNames, slotOf } from './slots.js';
import { fetchJSON } from './source.js';

const pollInterval = 3000; // ms
const maxResponseAge = 15000; // ms; without a response for so long, the grid is stale
const maxReadingAge = 60000; // ms; an older reading of a group proves nothing
const manyHosts = 14; // with more hosts the grid scrolls
const storageKey = 'zkelectd grid'; // in sessionStorage: what is shown, when the user returns from a group

const grid = byID('grid');
const filter = byID('filter');
let body = null; // the last response
let lastResponse = null;
let staleSince = 0;
let hosts = [];
let rows = []; // the groups that are shown, in their order
let view = { query: '', show: 'all', group: '', column: 0 }; // group and column: the current cell

let only = ''; // the group whose slots alone are shown, or '' for all groups

// startGrid shows the groups, or only the slots of one, and keeps them up to date.
export function startGrid(first, onlyGroup) {
  only = onlyGroup;
  try {
    view = { ...view, ...JSON.parse(sessionStorage.getItem(storageKey)) };
  } catch {
    // The stored view is damaged: begin with the default.
  }
  filter.value = view.query;
  receive(first);
  if (view.group) focusCell();
  filter.addEventListener('input', () => {
    view.query = filter.value;
    renderGrid();
  });
  filter.addEventListener('keydown', filterKey);
  grid.addEventListener('keydown', gridKey);
  grid.addEventListener('focusin', (e) => select(e.target.closest('.cell')));
  grid.addEventListener('pointerover', (e) => describe(e.target.closest('.cell')));
  grid.addEventListener('click', (e) => {
    const row = e.target.closest('.row[data-key]');
    if (row && row.dataset.key && !e.target.closest('a')) open(row.dataset.key);
  });
  document.addEventListener('keydown', (e) => {
    if (e.key === '/' && e.target !== filter) {
      e.preventDefault();
      filter.select();
    }
  });
  document.addEventListener('visibilitychange', () => {
    if (!document.hidden) poll();
  });
  addEventListener('pagehide', () => sessionStorage.setItem(storageKey, JSON.stringify(view)));
  addEventListener('pageshow', () => poll()); // also when the user returns to this page
  poll();
  setInterval(() => {
    if (!document.hidden || elapsed(lastResponse) > maxResponseAge) poll();
    renderLive();
  }, pollInterval);
}

let polling = false;

async function poll() {
  if (polling) return;
  polling = true;
  try {
    const response = await fetchJSON('v1/groups?members=1');
    if (response.body.groups) receive(response.body);
  } catch {
    // renderLive notices that there was no response.
  }
  polling = false;
  renderLive();
}

function receive(response) {
  body = response;
  lastResponse = timestamp();
  hosts = body.hosts || [];
  if (only) body.groups = body.groups.filter((g) => (slotOf(g.group) || {}).group === only);
  body.groups.sort((a, b) => compareNames(a.group, b.group));
  for (const g of body.groups) describeGroup(g);
  if (only) hosts = hosts.filter((h) => body.groups.some((g) => g.cells.has(h.node)));
  renderHeader();
  renderGrid();
  renderLive();
}

// describeGroup adds what the grid shows of a group. What the daemon has read is preferred to its own view, unless that is old.
function describeGroup(g) {
  const r = g.read;
  const fresh = r && r.state && parseDuration(r.age) < maxReadingAge;
  const h = g.holder || {};
  g.leader = fresh ? r.leader || '' : h.node || g.elected || '';
  g.leaderState = fresh ? r.state : h.state || 'UNKNOWN';
  if (g.leads) [g.leader, g.leaderState] = [body.node, 'READY'];
  g.problems = [...new Set([...(g.problems || []), ...((fresh && r.problems) || []), ...(r && r.error ? [`it cannot be read: ${r.error}`] : [])])];
  g.cells = new Map();
  for (const node of (fresh && r.lost) || []) g.cells.set(node, { kind: 'lost', text: 'lost' });
  for (const m of (fresh && r.members) || []) g.cells.set(m.node, cellOf(m));
  g.severity = fresh ? r.severity : '';
  if (fresh) g.problems = [...new Set([...(r.severity_reasons || []), ...g.problems])];
}

// cellOf returns the kind of a cell and its text.
function cellOf(m) {
  const roles = m.roles || [];
  const kind = roles.includes('leader') ? 'leader' : roles.includes('candidate') ? 'candidate' : m.health ? 'ineligible' : 'standby';
  const text = { leader: 'leads', candidate: 'takes over', standby: 'can lead', ineligible: 'cannot lead' }[kind];
  return { kind, elector: roles.includes('elector'), text: `${text}${roles.includes('elector') ? ', elector' : ''}${m.health ? `: ${m.health}` : ''}` };
}

const symbols = { leader: '●', candidate: '◐', standby: '○', ineligible: '✕', lost: '†', none: '' };

// kinds are the sets of groups that the strip offers.
const kinds = {
  all: { name: 'All', has: () => true },
  critical: { name: 'Critical', has: (g) => g.severity === 'critical', bad: true },
  leaderless: { name: 'Without a leader', has: (g) => !['READY', 'UNKNOWN'].includes(g.leaderState), bad: true },
  unknown: { name: 'Unknown', has: (g) => g.leaderState === 'UNKNOWN', warn: true },
  problems: { name: 'With problems', has: (g) => g.problems.length > 0, warn: true },
  paused: { name: 'Paused', has: (g) => g.paused },
  here: { name: 'Led here', has: (g) => g.leads },
};

// countGroups says how many groups there are, and how many slots they have.
function countGroups() {
  const slots = body.groups.filter((g) => slotOf(g.group)).length;
  if (only) return `${only}, ${slots} slots`;
  const groups = new Set(body.groups.map((g) => (slotOf(g.group) || g).group)).size;
  return `${groups} ${groups === 1 ? 'group' : 'groups'}${slots ? `, ${slots} slots` : ''}`;
}

function renderHeader() {
  setText(byID('group'), countGroups());
  setText(byID('viewpoint'), `view of ${body.node}: ${body.state}`);
  setText(byID('footer'), `Times are in ${Intl.DateTimeFormat().resolvedOptions().timeZone}. In a terminal: zkelectd status.`);
  const counts = Object.entries(kinds).map(([key, k]) => [key, body.groups.filter(k.has).length]).filter(([key, count]) => count || key !== 'unknown' || view.show === key);
  render(byID('strip'), [counts, view.show], () => counts.map(([key, count]) => el('button', {
    'type': 'button', 'data-act': key, 'aria-pressed': String(view.show === key), 'class': `${count && kinds[key].bad ? 'bad' : count && kinds[key].warn ? 'warn' : ''}`,
    'onclick': () => { view.show = view.show === key ? 'all' : key; renderHeader(); renderGrid(); },
  }, el('strong', null, String(count)), ` ${kinds[key].name}`)));
  const leaderless = body.groups.filter(kinds.leaderless.has);
  if (isLive()) setText(byID('announcement'), leaderless.length ? `Without a leader: ${leaderless.slice(0, 5).map((g) => g.group).join(', ')}${leaderless.length > 5 ? ` and ${leaderless.length - 5} more` : ''}` : '');
}

const isLive = () => lastResponse && elapsed(lastResponse) <= maxResponseAge;

function renderLive() {
  const live = isLive();
  staleSince = live ? 0 : staleSince || Date.now() - elapsed(lastResponse);
  const box = byID('banner');
  box.hidden = live;
  render(box, staleSince, () => (live ? [] : [el('strong', null, `Not live since ${formatTime(staleSince)}`), ': the daemon does not respond. The information below is old.']));
  setText(byID('live'), live ? 'live' : 'not live');
  byID('live').className = live ? 'on' : 'off';
  document.body.classList.toggle('stale', !live);
  const leaderless = body.groups.filter(kinds.leaderless.has).length;
  document.title = `${live ? '' : '(not live) '}${leaderless ? `${leaderless} WITHOUT A LEADER` : countGroups()} · ${body.node}`;
}

// matches reports whether a group contains each word of the query in its names or problems.
function matches(g, words) {
  const text = [g.group, g.root, g.leader, g.state, g.membership_reason, ...g.problems].join(' ').toLowerCase();
  return words.every((w) => text.includes(w));
}

function renderGrid() {
  const words = view.query.toLowerCase().split(/\s+/).filter(Boolean);
  rows = body.groups.filter((g) => kinds[view.show].has(g) && matches(g, words));
  setText(byID('groups-count'), rows.length === body.groups.length ? '' : `${rows.length} of ${body.groups.length} shown`);
  grid.style.setProperty('--hosts', Math.max(1, hosts.length));
  byID('matrix').classList.toggle('wide', hosts.length > manyHosts);
  grid.setAttribute('aria-rowcount', rows.length + 1);
  const led = new Map(hosts.map((h) => [h.node, body.groups.filter((g) => g.leader === h.node && g.leaderState === 'READY').length]));
  const head = { group: '', head: hosts.map((h) => [h, led.get(h.node)]) };
  const items = rows.map((g) => ({
    group: g.group, leader: g.leader, leaderState: g.leaderState, state: g.state, paused: g.paused, problems: g.problems, hosts: hosts.map((h) => [h.node, g.cells.get(h.node) || null]),
  }));
  const focused = grid.contains(document.activeElement);
  if (focused) select(document.activeElement.closest('.cell'));
  renderList(grid, [head, ...items], (i) => i.group, (i) => (i.head ? headRow(i) : groupRow(i)));
  if (!rows.some((g) => g.group === view.group)) view.group = '';
  for (const [i, row] of [...grid.children].entries()) row.setAttribute('aria-rowindex', i + 1);
  if (focused && !grid.contains(document.activeElement)) focusCell(); // its row was replaced
  else markCurrent();
}

function headRow(i) {
  return el('div', { role: 'row', class: 'row head' }, el('div', { role: 'columnheader', class: 'group-name' }, el('span', null, 'Group'), el('span', { class: 'led-by' }, 'Leader')),
    ...i.head.map(([h, n]) => el('div', { role: 'columnheader', class: 'host', title: `${h.node}${h.site ? `, site ${h.site}` : ''}: leads ${n}` },
      el('button', { 'type': 'button', 'class': 'label', 'data-act': `host ${h.node}`, 'onclick': () => hostDialog(h.node, n) }, h.node), el('span', { class: 'figure', 'aria-label': `leads ${n}` }, String(n)))));
}

function groupRow(g) {
  return el('div', { role: 'row', class: `row ${kinds.leaderless.has(g) ? 'leaderless' : ''}` },
    el('div', { 'role': 'rowheader', 'class': 'group-name cell', 'tabindex': -1, 'data-text': g.problems.join('; ') },
      el('a', { href: address(g.group), tabindex: -1 }, g.group),
      el('span', { class: 'led-by' }, leaderText(g), g.paused ? chip('in-force', 'paused') : null,
        g.problems.length ? el('span', { class: 'chip problem', title: g.problems.join('; ') }, g.problems.length === 1 ? 'problem' : `${g.problems.length} problems`) : null)),
    ...g.hosts.map(([node, c]) => el('div', {
      'role': 'gridcell', 'tabindex': -1, 'class': `cell ${c ? c.kind : 'none'} ${c && c.elector ? 'elector' : ''}`, 'aria-label': `${node}: ${c ? c.text : 'not a member'}`,
      'data-text': `${node}: ${c ? c.text : 'not a member'}`,
    }, symbols[c ? c.kind : 'none'])));
}

const chip = (kind, text) => el('span', { class: `chip ${kind}` }, text);

function leaderText(g) {
  if (g.leaderState === 'UNKNOWN') return el('span', { class: 'muted' }, 'unknown');
  if (!g.leader) return el('strong', { class: 'bad' }, 'no leader');
  return [el('span', null, g.leader), g.leaderState === 'READY' ? null : chip('progress', g.leaderState === 'PROGRESS' ? 'takes over' : 'elected')];
}

const address = (group) => `?group=${encodeURIComponent(group)}`;

function open(group) {
  location.href = address(group);
}

// The current cell is the only one that the tab key reaches; the arrow keys move it.

const rowOf = (group) => [...grid.children].find((r) => r.dataset.key === group);

function currentCell() {
  const row = (view.group && rowOf(view.group)) || grid.children[1];
  return row && row.children[Math.min(view.column, row.children.length - 1)];
}

function markCurrent() {
  const cell = currentCell();
  for (const other of grid.querySelectorAll('[tabindex="0"]')) if (other !== cell) other.tabIndex = -1;
  if (cell) cell.tabIndex = 0;
}

function focusCell() {
  markCurrent();
  const cell = currentCell();
  if (!cell) return;
  cell.focus({ preventScroll: true });
  cell.parentElement.scrollIntoView({ block: 'nearest' });
  cell.scrollIntoView({ block: 'nearest', inline: 'nearest' });
}

function select(cell) {
  if (!cell || !cell.parentElement.dataset.key) return;
  view.group = cell.parentElement.dataset.key;
  view.column = [...cell.parentElement.children].indexOf(cell);
  markCurrent();
  describe(cell);
}

// describe shows the text of a cell below the grid.
function describe(cell) {
  if (!cell || !cell.parentElement.dataset.key) return;
  const text = cell.dataset.text;
  setText(byID('cell'), `${cell.parentElement.dataset.key}${text ? `, ${text}` : ''}`);
}

function gridKey(e) {
  if (e.ctrlKey || e.altKey || e.metaKey || e.target.closest('.head')) return;
  const at = Math.max(0, rows.findIndex((g) => g.group === view.group));
  const move = (row, column) => {
    e.preventDefault();
    const to = rows[Math.max(0, Math.min(rows.length - 1, row))];
    if (!to) return;
    view.group = to.group;
    view.column = Math.max(0, Math.min(hosts.length, column));
    focusCell();
  };
  const steps = {
    ArrowDown: () => move(at + 1, view.column), ArrowUp: () => move(at - 1, view.column), ArrowRight: () => move(at, view.column + 1), ArrowLeft: () => move(at, view.column - 1),
    PageDown: () => move(at + 10, view.column), PageUp: () => move(at - 10, view.column), Home: () => move(0, view.column), End: () => move(rows.length - 1, view.column),
    Enter: () => { e.preventDefault(); if (rows[at]) open(rows[at].group); },
    Escape: () => filter.focus(),
  };
  if (steps[e.key]) steps[e.key]();
}

// filterKey leads from the search box to the first group that is found.
function filterKey(e) {
  if (e.key === 'ArrowDown' || e.key === 'Enter') {
    if (!rows.length) return;
    e.preventDefault();
    if (e.key === 'Enter' && rows.length === 1) return open(rows[0].group);
    [view.group, view.column] = [rows[0].group, 0];
    focusCell();
  } else if (e.key === 'Escape') {
    filter.value = view.query = '';
    renderGrid();
  }
}
