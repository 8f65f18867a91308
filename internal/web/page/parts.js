// Parts that several views of the page share.
import { formatAge, formatTime, parseDuration } from './clock.js';
import { el } from './dom.js';
import { model } from './source.js';

let submit = () => {};

// setRequestHandler stores the function that the buttons call with a kind and a target.
export function setRequestHandler(handler) {
  submit = handler;
}

export const isLive = () => model.stale.why === '';
export const today = () => new Date().toDateString(); // part of the data, because formatTime depends on it
export const chip = (kind, text) => el('span', { class: `chip ${kind}` }, text);

// requestButton returns a button that opens the request dialog. name is its label for screen readers.
export function requestButton(text, kind, target, name) {
  return el('button', { type: 'button', 'data-act': `${kind} ${JSON.stringify(target) || ''}`, 'aria-label': name, onclick: () => submit(kind, target) }, text);
}

// Times that tick: countdown is what remains, timeSince how long a state has lasted, timeAgo how long ago something was.

export const countdown = (ms) => el('span', { 'data-until': ms, title: `until ${formatTime(ms)}` });
export const timeSince = (ms) => relativeTime('data-since', ms);
export const timeAgo = (ms) => relativeTime('data-ago', ms);

function relativeTime(attribute, ms) {
  if (Number.isNaN(ms)) return el('span', null, 'an unknown time');
  return el('time', { [attribute]: ms, datetime: new Date(ms).toISOString(), title: formatTime(ms) }, formatAge(0));
}

// pageURL returns the URL of the page of a daemon, or '' if it is unknown. It checks what the daemon publishes, which may be anything.
export function pageURL(api, ownHost) {
  const [, scheme, host, port] = /^(https:\/\/)?(.*):([0-9]{1,5})$/.exec(api || '') || [];
  const name = ['', '0.0.0.0', '[::]'].includes(host) ? ownHost : host;
  return /^(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)$/.test(name || '') ? `${scheme || 'http://'}${name}:${port}/?group=${encodeURIComponent(model.status.group)}` : '';
}

// nodeName returns the name of a node, which links to the page of its daemon if that is another one.
export function nodeName(node, className, title) {
  const m = model.group && model.group.members.find((m) => m.node === node);
  const url = m && node !== model.status.node ? pageURL(m.api, m.host) : '';
  return url ? el('a', { href: url, rel: 'noreferrer', class: className, title: title || `the page of ${node}` }, node) : el('strong', { class: className, title }, node);
}

let ranks = { of: null, byNode: new Map() };

// rankOf returns the place of a node in the ranking now, or nothing if that is not known.
export function rankOf(node) {
  const e = model.explanation;
  if (e && ranks.of !== e) ranks = { of: e, byNode: new Map(e.members.map((m) => [m.node, m])) };
  return ranks.byNode.get(node);
}

// identityOf returns what identifies the process of a member, for a tooltip.
export function identityOf(m) {
  const order = ((rankOf(m.node) || {}).scores || []).find((s) => s.ranker === 'oldest');
  return [m.host, m.pid && `pid ${m.pid}`, order && order.words, `incarnation ${m.incarnation}`].filter(Boolean).join(', ');
}

// outageOf returns what the daemon of this page does in failsafe mode while ZooKeeper is away: {leads, members, since}; null if nothing.
export function outageOf(s) {
  const f = (s && s.failsafe) || {};
  if (f.active) return { leads: s.node, members: f.asks || [], since: model.failsafeSince };
  return f.outage && parseDuration(f.bound_for) > 0 ? { leads: '', members: [], since: null } : null;
}

// table returns a table, which scrolls if it is too wide. The roles keep it a table for screen readers, whatever its layout.
export function table(className, caption, head, rows) {
  return el('div', { class: 'scroll' }, el('table', { role: 'table', class: className }, el('caption', { class: 'visually-hidden' }, caption),
    el('thead', { role: 'rowgroup' }, el('tr', { role: 'row' }, ...head.map((h) => el('th', { role: 'columnheader', scope: 'col' }, h || el('span', { class: 'visually-hidden' }, 'Request'))))),
    el('tbody', { role: 'rowgroup' }, ...rows.map((cells) => el('tr', { role: 'row' }, ...cells.map((c, i) => el('td', { role: 'cell', 'data-label': head[i] }, ...[c].flat())))))));
}

// Requests in force.

export const isCordon = (r) => ['cordon', 'drain'].includes(r.kind);
export const pauseOf = (g) => (g.requests || []).find((r) => r.kind === 'pause' || r.kind === 'hard-pause');
export const moveOf = (g) => (g.requests || []).find((r) => r.kind === 'move');
