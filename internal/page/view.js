// Rendering the model. Only parts that have changed are rendered again; tick updates the countdowns.
import { formatTime, daemonTime, parseDuration, elapsed, formatGoDuration, formatDuration } from './clock.js';
import { byID, render, el, renderList, setText } from './dom.js';
import { model } from './source.js';

const manyMembers = 24; // with more members there is a search box
const firstRanks = 20; // initial number of rows of the ranking

let hooks = {};
let allRanks = false;

// init stores the functions that the page's controls call: request(kind, target) and connect().
export function init(controls) {
  hooks = controls;
  byID('search').addEventListener('input', () => renderMembers());
}

export function renderAll() {
  renderHeader();
  renderBanner();
  renderLeader();
  renderProblems();
  renderMembers();
  renderRequests();
  renderRanking();
  renderHistory();
  tick();
}

const chip = (kind, text) => el('span', { class: `chip ${kind}` }, text);
const isLive = () => model.stale.why === '';
const today = () => new Date().toDateString(); // part of the data, because formatTime depends on it
const countdown = (ms) => el('span', { 'data-until': ms });
const timeSince = (ms) => el('span', { 'data-since': ms });

// requestButton returns a button that opens the request dialog. name is its label for screen readers.
function requestButton(text, kind, target, name) {
  return el('button', { type: 'button', 'data-act': `${kind} ${JSON.stringify(target) || ''}`, 'aria-label': name, onclick: () => hooks.request(kind, target) }, text);
}

function renderHeader() {
  const s = model.status;
  if (s) {
    setText(byID('group'), s.root);
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
  render(box, [since, why], () => [
    el('strong', null, `Not live since ${formatTime(since)}`),
    `: ${why}. The information below is old, and no lease is confirmed.`,
    el('button', { type: 'button', 'data-act': 'again', onclick: () => hooks.connect() }, 'Try now'),
  ]);
}

let announced = '';

// announce makes screen readers announce a change of leadership.
function announce(text) {
  if (announced !== '' && text !== announced) setText(byID('announcement'), text);
  announced = text;
}

function renderLeader() {
  const g = model.group;
  const s = model.status;
  const body = byID('leader-body');
  if (!g) {
    if (!s) return;
    return render(body, ['unknown', model.groupError], () => el('div', { class: 'who none' }, el('p', { class: 'name' }, 'Unknown'), el('p', null, model.groupError)));
  }
  const e = model.explanation;
  const blocked = (e && e.term === g.term && e.preemption_blocked) || s.preemption_blocked || '';
  const data = {
    state: g.state, leader: g.leader, site: g.site, term: g.term, since: g.since, cause: g.cause, reason: g.reason, next: g.next,
    blocked, note: s.note || '', paused: pauseOf(g), here: s.node, live: isLive(), today: today(), leaderlessSince: model.leaderlessSince, link: leaderURL(g), elector: g.elector,
  };
  byID('leader').className = g.leader ? g.state.toLowerCase() : 'none';
  render(body, data, leaderCard);
  announce(g.leader ? `${g.leader}, site ${g.site}, ${g.state}, term ${g.term}` : 'No leader');
}

const pauseOf = (g) => (g.requests || []).find((r) => r.kind === 'pause' || r.kind === 'hard-pause');

function leaderCard(d) {
  const facts = [];
  const addFact = (name, ...value) => facts.push(el('div', null, el('dt', null, name), el('dd', null, ...value)));
  let who;
  if (d.leader) {
    who = el('div', { class: 'who' }, el('p', { class: 'name' }, d.leader), el('p', { class: 'place' }, d.site ? `site ${d.site}` : 'no site'),
      chip(`state ${d.state.toLowerCase()}`, (d.live ? '' : 'last seen ') + stateText(d.state)));
    addFact('Term', String(d.term));
    if (d.since) addFact(d.state === 'READY' ? 'READY for' : 'For', timeSince(Date.parse(d.since)), el('span', { class: 'muted' }, ` since ${formatTime(Date.parse(d.since))}`));
    addFact('Elector', d.elector || 'none');
  } else {
    who = el('div', { class: 'who' }, el('p', { class: 'name' }, 'No leader'));
    const since = d.leaderlessSince;
    addFact(since && since.before ? 'At least since' : 'Since', since ? formatTime(since.at) : '', el('span', { class: 'muted' }, ' for '), since ? timeSince(since.at) : '');
    addFact('Elector', d.elector || 'none');
  }
  const why = [];
  const addReason = (name, ...text) => why.push(el('dt', null, name), el('dd', null, ...text));
  if (d.next) addReason('Next', d.next);
  if (d.reason) addReason(d.leader ? 'Why it leads' : 'The last decision', d.cause ? chip('cause', d.cause) : '', ` ${d.reason}`);
  if (d.blocked) addReason('Preemption blocked', d.blocked);
  if (d.note) addReason('No leader is elected', d.note);
  if (d.paused) addReason('Paused', pauseText(d.paused));
  return [
    el('div', { class: 'leader-facts' }, who, el('dl', { class: 'facts' }, ...facts), d.leader ? leaseView(d) : null, controls(d)),
    why.length ? el('dl', { class: 'reasons' }, ...why) : null,
  ];
}

function stateText(state) {
  return { READY: 'READY', PROGRESS: 'PROGRESS: taking over', WAITING: 'WAITING: elected, has not taken over' }[state] || state;
}

// leaseView returns a meter if this daemon leads. Other daemons do not know the lease.
function leaseView(d) {
  if (d.here !== d.leader) {
    return el('p', { class: 'lease muted' }, 'Only the leader knows its lease', d.link ? [': see ', el('a', { href: d.link, rel: 'noreferrer' }, 'its own page')] : '', '.');
  }
  return el('div', { class: 'lease' }, el('span', { id: 'lease-name' }, 'Lease'),
    el('div', { id: 'lease', class: 'meter', role: 'meter', 'aria-labelledby': 'lease-name', 'aria-valuemin': 0, 'aria-valuemax': 1, 'aria-valuenow': 0 }, el('span', null)),
    el('span', { id: 'lease-left', class: 'figure' }));
}

function controls(d) {
  return el('p', { class: 'controls' },
    requestButton('Move…', 'move'),
    requestButton('Step down…', 'step-down'),
    d.paused ? requestButton('Resume…', 'resume') : requestButton('Pause…', 'pause'));
}

// leaderURL returns the URL of the leader's page, or '' if it is unknown. It checks what the leader publishes, which may be anything.
function leaderURL(g) {
  if (!g.api) return '';
  const [, scheme, host, port] = /^(https:\/\/)?(.*):([0-9]{1,5})$/.exec(g.api) || [];
  const own = (g.members.find((m) => m.node === g.leader) || {}).host;
  const name = ['', '0.0.0.0', '[::]'].includes(host) ? own : host;
  return /^(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)$/.test(name || '') ? `${scheme || 'http://'}${name}:${port}/` : '';
}

function renderProblems() {
  const all = (model.group && model.group.problems) || [];
  byID('problems').hidden = all.length === 0;
  renderList(byID('problems-body'), all.map((text, at) => ({ text, at })), (p) => p.at, (p) => el('li', null, p.text));
}

function renderMembers() {
  const g = model.group;
  if (!g) return;
  const eligible = g.members.filter((m) => m.health === 'ok').length;
  setText(byID('members-count'), g.members.length ? `${eligible} of ${g.members.length} eligible` : 'No daemon is registered.');
  byID('search-label').hidden = g.members.length <= manyMembers;
  const query = g.members.length > manyMembers ? byID('search').value.trim().toLowerCase() : '';
  const sites = new Map();
  for (const m of g.members) {
    const site = sites.get(m.site) || { site: m.site, all: 0, eligible: 0, members: [], requests: [] };
    site.all++;
    if (m.health === 'ok') site.eligible++;
    if (matches(m, query)) site.members.push({ ...m, exclusion: exclusionOf(g, m), requests: requestsOf(g, m.node) });
    sites.set(m.site, site);
  }
  for (const site of sites.values()) site.requests = requestsOf(g, `site ${site.site}`);
  renderList(byID('sites'), [...sites.values()].filter((s) => s.members.length), (s) => s.site, siteColumn);
}

const matches = (m, query) => query === '' || [m.node, m.site, m.host, m.health, ...m.roles].some((t) => t.toLowerCase().includes(query));
const exclusionOf = (g, m) => (g.exclusions || []).find((x) => x.node === m.node && !x.expired);
const requestsOf = (g, target) => (g.requests || []).filter((r) => r.target === target && ['cordon', 'drain', 'step-down'].includes(r.kind));

// siteColumn is created once and then refreshed, so that a long list keeps its scroll position.
function siteColumn(s) {
  const head = el('div', { class: 'site-head' });
  const ul = el('ul', { class: 'members', role: 'list', 'aria-label': `Members of ${s.site || 'no site'}` });
  const column = el('section', { class: 'site', 'aria-label': `Site ${s.site || 'without a name'}` }, head, ul);
  column.refresh = (now) => {
    render(head, [now.site, now.all, now.eligible, now.requests.map(withEnd)], () => [
      el('h3', null, now.site || 'no site'),
      el('p', { class: 'muted' }, `${now.eligible} of ${now.all} eligible`),
      ...now.requests.map(requestChip),
      now.site ? requestButton('Request…', 'site', { site: now.site }, `Request for site ${now.site}`) : null,
    ]);
    const long = now.members.length > 12;
    renderList(ul, (long ? now.members.toSorted((a, b) => sortRank(b) - sortRank(a)) : now.members).map(withoutNoise), (m) => m.incarnation, memberCard);
    column.classList.toggle('long', long);
    // A list that scrolls must be reachable by keyboard.
    if (long) ul.tabIndex = 0;
    else ul.removeAttribute('tabindex');
  };
  return column;
}

// sortRank is higher for members that come first in a long list: those with a role, then ineligible ones.
const sortRank = (m) => (m.roles.length ? 2 : m.health === 'ok' ? 0 : 1);

// withEnd replaces a request's remaining time, which differs in every response, by the time when it ends.
function withEnd(request) {
  const { remaining, ...rest } = request;
  return { ...rest, ends: remaining == null ? 0 : Math.round((daemonTime() + parseDuration(remaining)) / 2000) * 2000 };
}

// withoutNoise removes what changes in every response.
function withoutNoise(m) {
  return { ...m, latency_ms: m.latency_ms == null ? null : Number(m.latency_ms.toPrecision(1)), requests: m.requests.map(withEnd) };
}

// requestChip shows a request in force on a node or site.
function requestChip(request) {
  const r = 'ends' in request ? request : withEnd(request);
  return chip('in-force', [{ cordon: 'cordoned', drain: 'drained', 'step-down': 'stepped down' }[r.kind], r.ends ? [', ', countdown(r.ends), ' left'] : '']);
}

function memberCard(m) {
  const role = m.roles.find((r) => r !== 'elector') || (m.roles.length ? '' : 'standby');
  const [, rank, verdict] = /^(\d+)\. (.*)$/s.exec(m.why || '') || [null, '', m.why || 'joined since the last election'];
  const facts = [`priority ${m.priority}`, m.host && `${m.host}, pid ${m.pid}`, m.latency_ms != null && `${m.latency_ms} ms`, m.score != null && `score ${Number(m.score.toPrecision(3))}`,
    ...Object.entries(m.labels || {}).map(([k, v]) => `${k}=${v}`)].filter(Boolean);
  return el('li', { class: `member ${role} ${m.health === 'ok' ? '' : 'ineligible'}` },
    el('div', { class: 'member-head' },
      el('span', { class: 'rank', title: 'Rank in the last election' }, rank || '–'),
      el('strong', { class: 'node' }, m.node),
      role ? chip(`role ${role}`, role) : null,
      m.roles.includes('elector') ? chip('role elector', 'elector') : null,
      m.policy_drift ? chip('in-force', 'policy drift') : null,
      requestButton('Request…', 'node', { node: m.node }, `Request for ${m.node}`)),
    el('p', { class: 'health' }, healthText(m)),
    rank || m.health === 'ok' ? el('p', { class: 'verdict' }, verdict) : null,
    el('p', { class: 'muted figures' }, facts.join(' · ')));
}

function healthText(m) {
  if (m.health === 'ok') return el('span', { class: 'ok' }, 'ok');
  const ends = m.exclusion ? Date.parse(m.exclusion.time) + parseDuration(m.exclusion.for) : NaN;
  if (!Number.isNaN(ends)) return [el('span', { class: 'bad' }, `excluded, strike ${m.exclusion.strikes}: ${m.exclusion.reason}`), ' ', chip('in-force', [countdown(ends), ' left'])];
  if (m.requests.length) return [...m.requests.map(requestChip), ` by ${m.requests[0].by}${m.requests[0].reason ? `: ${m.requests[0].reason}` : ''}`];
  return el('span', { class: 'bad' }, m.health);
}

function pauseText(r) {
  return `${r.kind === 'hard-pause' ? 'no member is elected, not even to replace a leader that fails' : 'policy does not replace a healthy leader; a leader that fails is still replaced'}; by ${r.by}${r.reason ? ` (${r.reason})` : ''}`;
}

const kindTexts = { 'pause': 'paused', 'hard-pause': 'paused (hard)', 'move': 'moved to', 'reelect': 'reelection requested', 'cordon': 'cordoned', 'drain': 'drained', 'step-down': 'stepped down' };
const endingKinds = { 'pause': 'resume', 'hard-pause': 'resume', 'move': 'reelect', 'cordon': 'uncordon', 'drain': 'uncordon', 'step-down': 'uncordon' };

// endingTarget returns the target of the request that ends r. The text "site X" may also be the name of a node.
function endingTarget(r, g) {
  if (!['cordon', 'drain', 'step-down'].includes(r.kind)) return undefined;
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
    return table('Requests and exclusions in force', ['What', 'By', 'Why', 'Since', 'Ends', ''], rows.map((r) => [
      el('strong', null, r.what), r.by, r.why || '–', formatTime(r.at),
      r.expired ? 'expired; the strike still counts' : r.ends ? [countdown(r.ends), ' left'] : 'no end',
      r.end ? requestButton(r.end === 'clear-strikes' ? 'Clear strikes…' : 'End…', r.end, r.target, `End: ${r.what}`) : '',
    ]));
  });
}

// table becomes a list of cards on a narrow screen. The roles keep it a table for screen readers.
function table(caption, head, rows) {
  return el('div', { class: 'scroll' }, el('table', { role: 'table' }, el('caption', { class: 'visually-hidden' }, caption),
    el('thead', { role: 'rowgroup' }, el('tr', { role: 'row' }, ...head.map((h) => el('th', { role: 'columnheader', scope: 'col' }, h || el('span', { class: 'visually-hidden' }, 'Request'))))),
    el('tbody', { role: 'rowgroup' }, ...rows.map((cells) => el('tr', { role: 'row' }, ...cells.map((c, i) => el('td', { role: 'cell', 'data-label': head[i] }, c)))))));
}

function renderRanking() {
  const e = model.explanation;
  const body = byID('why-body');
  if (!e) return render(body, model.explainError, () => el('p', { class: 'muted' }, model.explainError || 'Not available yet.'));
  render(body, [e, allRanks], () => {
    const rankers = [...new Set(e.members.flatMap((m) => (m.scores || []).filter((s) => s.words || s.value).map((s) => s.ranker)))];
    const shown = allRanks ? e.members : e.members.slice(0, firstRanks);
    const c = e.circumstances || {};
    const after = c.cause && c.node ? `, after: ${c.cause} of ${c.node}${c.site ? ` (${c.site})` : ''}` : '';
    return [
      el('p', { class: 'muted' }, `Now, by policy ${e.policy_type}, revision ${e.policy_revision}${after}${(c.failed || []).length ? `; failed: ${c.failed.join(', ')}` : ''}.`),
      ...(e.notes || []).map((n) => el('p', { class: 'note' }, n)),
      e.members.length ? table('The members, best first', ['Rank', 'Node', ...rankers, 'Filters'], shown.map((m) => [
        m.rank ? String(m.rank) : '–', [el('strong', { class: m.node === e.leader ? 'leads' : null }, m.node), m.site ? el('span', { class: 'muted' }, ` ${m.site}`) : null],
        ...rankers.map((r) => ((s) => (s && (s.words || s.value)) || '–')((m.scores || []).find((s) => s.ranker === r))),
        (m.refusals || []).length ? el('span', { class: 'bad' }, m.refusals.map((f) => `${f.filter}: ${f.why}`).join('; ')) : 'passed',
      ])) : null,
      shown.length < e.members.length ? el('button', { type: 'button', onclick: () => { allRanks = true; renderRanking(); } }, `Show all ${e.members.length}`) : null,
      changesList(e),
    ];
  });
}

function changesList(e) {
  const all = e.changes || [];
  if (!all.length) return null;
  return el('details', { open: all.length <= 8 }, el('summary', null, 'What would change it'), el('ul', null, ...all.slice(0, 60).map((c) => el('li', null, c)),
    all.length > 60 ? el('li', null, `and ${all.length - 60} more: zkelectd explain`) : null));
}

function renderHistory() {
  if (!model.terms) return;
  const terms = model.terms.toReversed().map((t) => ({ ...t, today: today() }));
  renderList(byID('history-body'), terms, (t) => t.term, (t) => el('li', { class: t.outcome === 'READY' ? 'ready' : 'failed' },
    el('p', { class: 'turn' }, el('strong', null, t.node), t.site ? el('span', { class: 'muted' }, ` ${t.site}`) : null,
      t.previous && t.previous !== t.node ? el('span', { class: 'muted' }, ` after ${t.previous}`) : null, ' ', chip('cause', t.cause)),
    el('p', null, t.reason),
    t.outcome && t.outcome !== 'READY' ? el('p', { class: 'bad' }, t.outcome) : null,
    el('p', { class: 'muted figures' }, [formatTime(Date.parse(t.time)), `term ${t.term}`, t.by && `by ${t.by}`, t.leaderless && `${formatGoDuration(t.leaderless)} without a leader`, t.to_ready && `ready after ${formatGoDuration(t.to_ready)}`].filter(Boolean).join(' · '))));
}

// tick updates the countdowns and the lease.
export function tick() {
  const now = daemonTime();
  for (const e of document.querySelectorAll('[data-until]')) setText(e, formatDuration(Number(e.dataset.until) - now));
  // While the page is not live, it is unknown whether the state continues, so durations do not grow.
  if (isLive()) for (const e of document.querySelectorAll('[data-since]')) setText(e, formatDuration(now - Number(e.dataset.since)));
  const meter = byID('lease');
  if (meter) renderLease(meter);
}

// renderLease shows the remaining time of the lease, or nothing if it is not confirmed.
function renderLease(meter) {
  const l = model.lease;
  const g = model.group;
  const total = parseDuration(model.status.lease) || 0;
  const left = isLive() && l && l.holds && l.term === g.term ? l.left - elapsed(l.requestedAt) : 0;
  const share = total > 0 ? Math.min(1, Math.max(0, left / total)) : 0;
  meter.firstElementChild.style.transform = `scaleX(${share})`;
  meter.className = `meter ${share > 0.4 ? 'good' : share > 0 ? 'tight' : 'over'}`;
  const text = left > 0 ? `${(left / 1000).toFixed(1)} s of ${(total / 1000).toFixed(1)} s` : !isLive() ? 'unknown' : l && !l.holds && l.why ? l.why : 'not confirmed';
  meter.setAttribute('aria-valuemax', (total / 1000).toFixed(1));
  meter.setAttribute('aria-valuenow', (Math.max(0, left) / 1000).toFixed(1));
  meter.setAttribute('aria-valuetext', text);
  setText(byID('lease-left'), text);
}
