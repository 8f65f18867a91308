// Who led when, from the history.
import { daemonTime, formatAge, formatTime, parseDuration } from './clock.js';
import { el } from './dom.js';
import { model } from './source.js';

const hour = 3600000;
const spans = [1, 6, 24, 7 * 24, 30 * 24].map((h) => h * hour);
const changesShown = 4; // the bar covers at least so many changes, if they are in the history
const hues = 5; // of other nodes than the leader

// planned are the causes of changes that somebody wanted.
const planned = ['first', 'move', 'drain', 'reelect', 'preempt', 'stopped'];

// lastFailover returns the newest term that began because the leader before failed, or nothing.
export const lastFailover = () => (model.terms || []).findLast((t) => !planned.includes(t.cause));

// readyTimes returns the reigns of READY leaders, oldest first.
function readyTimes(now) {
  const all = [];
  for (const t of model.terms || []) {
    const decided = Date.parse(t.time);
    if (Number.isNaN(decided)) continue;
    const before = all.at(-1);
    if (before) before.to = Math.min(before.to, Math.max(before.from, decided));
    if (t.outcome !== 'READY') continue;
    const from = decided + (parseDuration(t.to_ready) || 0);
    const gap = parseDuration(t.leaderless?.for);
    if (before && !Number.isNaN(gap)) before.to = Math.max(before.from, from - gap);
    all.push({ node: t.node, from, to: now });
  }
  const g = model.group;
  const last = all.at(-1);
  if (!last || g.state === 'READY') return all;
  const ended = g.leader ? Date.parse(g.since) : model.leaderlessSince.at; // at the latest
  if (!Number.isNaN(ended)) last.to = Math.max(last.from, Math.min(last.to, ended));
  return all;
}

// reigns returns what the bar shows: when it begins, the shares of the leaders, and the segments, with those without a leader.
export function reigns() {
  const now = daemonTime();
  const all = readyTimes(now).filter((r) => r.from < now);
  if (!all.length) return null;
  const wanted = now - all[Math.max(0, all.length - changesShown)].from;
  const begin = Math.max(now - (spans.find((s) => s >= wanted) || spans.at(-1)), all[0].from);
  const segments = [];
  let at = begin;
  for (const r of [...all, { node: '', from: now, to: now }]) {
    if (r.from > at) segments.push({ node: '', from: at, to: r.from });
    if (r.to > Math.max(r.from, begin)) segments.push({ node: r.node, from: Math.max(r.from, begin), to: r.to });
    at = Math.max(at, r.to);
  }
  const share = new Map();
  for (const s of segments) share.set(s.node, (share.get(s.node) || 0) + s.to - s.from);
  const permille = (ms) => Math.round((1000 * ms) / Math.max(1, now - begin));
  return {
    begin: Math.round(begin / 1000) * 1000,
    segments: segments.map((s) => ({ node: s.node, share: permille(s.to - s.from), from: Math.round(s.from / 1000) * 1000, length: formatAge(s.to - s.from) })),
    nodes: [...share].map(([node, ms]) => ({ node, share: permille(ms), length: formatAge(ms) })).sort((a, b) => (a.node === '') - (b.node === '') || b.share - a.share),
  };
}

// reignBar returns the bar with its legend.
export function reignBar(r, leader) {
  const others = r.nodes.map((n) => n.node).filter((n) => n && n !== leader);
  const hue = (node) => (node === '' ? 'nobody' : node === leader ? 'hue-leader' : `hue-${others.indexOf(node) % hues}`);
  const text = (n) => `${n.node || 'nobody'} ${n.share < 10 ? '< 1' : Math.round(n.share / 10)} %`;
  const bar = el('div', { class: 'reigns', role: 'img', 'aria-label': `Who led: ${r.nodes.map(text).join(', ')}` }, ...r.segments.map((s) => {
    const e = el('span', { class: hue(s.node), title: `${s.node || 'no leader'}, ${s.length} from ${formatTime(s.from)}` });
    e.style.flexGrow = Math.max(1, s.share);
    return e;
  }));
  const shown = r.nodes.slice(0, hues + 1);
  return [bar, el('p', { class: 'legend figures' }, ...shown.map((n) => el('span', { title: n.length }, el('span', { class: `swatch ${hue(n.node)}` }), text(n))),
    r.nodes.length > shown.length ? el('span', { class: 'muted' }, `and ${r.nodes.length - shown.length} more`) : null)];
}
