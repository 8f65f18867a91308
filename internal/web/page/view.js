// Rendering the model. Only parts that have changed are rendered again; tick updates the times.
import { daemonTime, formatAge, formatDuration, formatGap, formatGoDuration, formatTime, parseDuration } from './clock.js';
import { byID, el, render, renderList, setText } from './dom.js';
import { renderLeader, renderLease } from './leader.js';
import { initMembers, renderMembers, withEnd } from './members.js';
import { chip, countdown, isCordon, isLive, outageOf, requestButton, setRequestHandler, table, timeAgo, today } from './parts.js';
import { renderRanking } from './ranking.js';
import { model } from './source.js';
import { renderSummary } from './summary.js';

let reconnect = () => {};

// init stores the functions that the page's controls call: request(kind, target) and connect().
export function init(controls) {
  setRequestHandler(controls.request);
  reconnect = controls.connect;
  initMembers();
}

export function renderAll() {
  renderHeader();
  renderBanner();
  renderSummary();
  renderLeader();
  renderProblems();
  renderMembers();
  renderRequests();
  renderRanking();
  renderHistory();
  tick();
}

function renderHeader() {
  const s = model.status;
  if (s) {
    setText(byID('group'), s.root.endsWith(`/${s.group}`) ? s.root : `${s.group} (${s.root})`);
    const role = s.elector && s.phase === 'standby' ? 'elector' : s.state + (s.elector ? ', elector' : '');
    setText(byID('viewpoint'), `view of ${s.node}${s.site ? ` (${s.site})` : ''}: ${role}`);
  }
  const state = isLive() ? 'live' : model.stale.why === 'connecting' ? 'connecting…' : 'not live';
  setText(byID('live'), state);
  byID('live').className = isLive() ? 'on' : 'off';
  document.body.classList.toggle('stale', !isLive() && model.stale.why !== 'connecting');
  document.title = `${isLive() ? '' : '(not live) '}${headline()} · ${s ? s.root : 'zkelectd'}`;
  const policy = model.group && model.group.policy ? `Policy ${model.group.policy}. ` : '';
  setText(byID('footer'), `${policy}Times are in ${Intl.DateTimeFormat().resolvedOptions().timeZone}. In a terminal: zkelectd status, explain, history.`);
}

// headline returns the leader and its state for the title.
function headline() {
  const g = model.group;
  if (!g) return 'zkelectd';
  return g.leader ? `${g.leader} ${g.state}` : 'NO LEADER';
}

function renderBanner() {
  const box = byID('banner');
  const { since, why } = model.stale;
  box.hidden = isLive() || why === 'connecting';
  if (box.hidden) return render(box, '', () => []);
  const outage = outageOf(model.status);
  render(box, [since, why, outage], () => [
    el('strong', null, `Not live since ${formatTime(since)}`),
    `: ${why}. The information below is old, and no lease is confirmed.`,
    outage && el('strong', { class: 'failsafe' }, outage.leads ? `Failsafe mode: ${outage.leads} works on without ZooKeeper, by the promises of ${outage.members.join(', ')}.`
      : `Failsafe mode: ${model.status.node} has promised the leader to let nobody take over.`),
    el('button', { type: 'button', 'data-act': 'again', onclick: () => reconnect() }, 'Try now'),
  ]);
}

function renderProblems() {
  const g = model.group || {};
  const passing = g.passing_problems || [];
  const all = (g.problems || []).map((text, at) => ({ text, at, passes: passing.includes(text) })).sort((a, b) => a.passes - b.passes);
  if (g.open_tree) all.push({ text: 'Anyone who can reach ZooKeeper can stop this group, or lock it out: see zookeeper.acl in docs/security.md', at: 'open', passes: false });
  byID('problems').hidden = all.length === 0;
  renderList(byID('problems-body'), all, (p) => p.at, (p) => el('li', { class: p.passes ? 'passes' : 'act' }, chip(p.passes ? '' : 'in-force', p.passes ? 'passes by itself' : 'act'), el('span', null, p.text)));
}

const kindTexts = { 'pause': 'paused', 'hard-pause': 'paused (hard)', 'move': 'moved to', 'reelect': 'reelection requested', 'cordon': 'cordoned', 'drain': 'drained', 'proposal': 'proposed to elect' };
const endingKinds = { 'pause': 'resume', 'hard-pause': 'resume', 'move': 'reelect', 'cordon': 'uncordon', 'drain': 'uncordon' };

// endingTarget returns the target of the request that ends r. The text "site X" may also be the name of a node.
function endingTarget(r, g) {
  if (!isCordon(r)) return undefined;
  const [, site] = /^site (.*)$/s.exec(r.target) || [];
  return site && !g.members.some((m) => m.node === r.target) ? { site } : { node: r.target };
}

function renderRequests() {
  const g = model.group;
  if (!g) return;
  const rows = [
    ...(g.requests || []).map((r) => ({ what: `${kindTexts[r.kind] || r.kind} ${r.target || ''}`.trim(), by: r.by, why: r.reason || '', at: Date.parse(r.time), ends: withEnd(r).ends, end: endingKinds[r.kind], target: endingTarget(r, g) })),
    ...(g.exclusions || []).map((x) => ({
      what: `excluded ${x.node}, strike ${x.strikes}`, by: 'watchdog', why: x.reason, at: Date.parse(x.time), ends: Date.parse(x.time) + parseDuration(x.for), expired: x.expired, end: 'clear-strikes', target: { node: x.node },
    })),
  ];
  render(byID('requests-body'), [rows, today()], () => {
    if (!rows.length) return el('p', { class: 'muted' }, 'None: policy alone decides.');
    return table('cards', 'Requests and exclusions in force', ['What', 'By', 'Why', 'Since', 'Ends', ''], rows.map((r) => [
      el('strong', null, r.what), r.by, r.why || '–', el('span', null, timeAgo(r.at), ' ago'),
      r.expired ? 'expired; the strike still counts' : r.ends ? el('span', null, countdown(r.ends), ' left') : 'no end',
      r.end ? requestButton(r.end === 'clear-strikes' ? 'Clear strikes…' : 'End…', r.end, r.target, `End: ${r.what}`) : '',
    ]));
  });
}

function renderHistory() {
  if (!model.terms) return;
  const terms = model.terms.toReversed().map((t) => ({ ...t, today: today() }));
  renderList(byID('history-body'), terms, (t) => t.term, (t) => el('li', { class: t.outcome === 'READY' ? 'ready' : 'failed' },
    el('p', { class: 'turn' }, el('strong', null, t.node), t.site ? el('span', { class: 'muted' }, ` ${t.site}`) : null,
      t.previous && t.previous !== t.node ? el('span', { class: 'muted' }, ` after ${t.previous}`) : null, ' ', chip('cause', t.cause)),
    el('p', null, t.reason),
    t.outcome && t.outcome !== 'READY' ? el('p', { class: 'bad' }, t.outcome) : null,
    t.forced ? el('p', { class: 'bad forced' }, chip('in-force', 'forced'), ` ${t.forced.by} has declared that no work of this term is left${t.forced.reason ? `: ${t.forced.reason}` : ''}`) : null,
    el('p', { class: 'muted figures' }, timeAgo(Date.parse(t.time)), ` ago · ${[`term ${t.term}`, t.by && `by ${t.by}`, t.leaderless && `${formatGap(t.leaderless)} without a leader`, t.to_ready && `ready after ${formatGoDuration(t.to_ready)}`].filter(Boolean).join(' · ')}`)));
}

// tick updates the times and the lease.
export function tick() {
  const now = daemonTime();
  for (const e of document.querySelectorAll('[data-until]')) setText(e, formatDuration(Number(e.dataset.until) - now));
  for (const e of document.querySelectorAll('[data-ago]')) setText(e, formatAge(now - Number(e.dataset.ago)));
  // While the page is not live, it is unknown whether the state continues, so durations do not grow.
  if (isLive()) for (const e of document.querySelectorAll('[data-since]')) setText(e, formatAge(now - Number(e.dataset.since)));
  renderLease();
}
