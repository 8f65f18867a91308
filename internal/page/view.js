// Drawing what is known. Nothing is drawn anew that has not changed; countdowns are kept by tick.
import { clockTime, daemonTime, milliseconds, passed, short, words } from './clock.js';
import { byID, draw, el, list, put } from './dom.js';
import { known } from './source.js';

const manyMembers = 24; // from here on there is a search
const firstRanks = 20; // rows of the ranking that are shown at first

let hooks = {};
let allRanks = false;

// view draws everything that is known. The controls call what is in controls: request(kind, target), connect().
export function view(controls) {
  hooks = controls;
  byID('search').addEventListener('input', () => members());
}

export function drawAll() {
  header();
  banner();
  leader();
  problems();
  members();
  requests();
  ranking();
  history();
  tick();
}

const chip = (kind, text) => el('span', { class: `chip ${kind}` }, text);
const live = () => known.stale.why === '';
const today = () => new Date().toDateString(); // a time of day becomes a date with the next day
const until = (ms) => el('span', { 'data-until': ms });
const ago = (ms) => el('span', { 'data-since': ms });

// requestButton opens the dialog; who hears instead of seeing it gets the target's name.
function requestButton(text, kind, target, name) {
  return el('button', { type: 'button', 'data-act': `${kind} ${JSON.stringify(target) || ''}`, 'aria-label': name, onclick: () => hooks.request(kind, target) }, text);
}

function header() {
  const s = known.status;
  if (s) {
    put(byID('group'), s.root);
    const role = s.elector && s.phase === 'standby' ? 'elector' : s.state + (s.elector ? ', elector' : '');
    put(byID('seen'), `as ${s.node} sees it${s.site ? ` (${s.site})` : ''}: ${role}`);
  }
  const state = live() ? 'live' : known.stale.why === 'connecting' ? 'connecting…' : 'not live';
  put(byID('live'), state);
  byID('live').className = live() ? 'on' : 'off';
  document.body.classList.toggle('stale', !live() && known.stale.why !== 'connecting');
  document.title = `${live() ? '' : '(not live) '}${headline()} · ${s ? s.root : 'zkelectd'}`;
  const policy = known.group && known.group.policy ? `Policy ${known.group.policy}. ` : '';
  put(byID('footer'), `${policy}Times are of ${Intl.DateTimeFormat().resolvedOptions().timeZone}. In a terminal: zkelectd status, explain, history.`);
}

// headline is who leads, in a few words.
function headline() {
  const g = known.group;
  if (!g) return 'zkelectd';
  return g.leader ? `${g.leader} ${g.state}` : 'NO LEADER';
}

function banner() {
  const box = byID('banner');
  const { since, why } = known.stale;
  box.hidden = live() || why === 'connecting';
  if (box.hidden) return draw(box, '', () => []);
  draw(box, [since, why], () => [
    el('strong', null, `Not live since ${clockTime(since)}`),
    `: ${why}. What is shown is old, and nobody’s lease is vouched for.`,
    el('button', { type: 'button', 'data-act': 'again', onclick: () => hooks.connect() }, 'Try now'),
  ]);
}

let said = '';

// say has a screen reader tell of a change of leadership.
function say(text) {
  if (said !== '' && text !== said) put(byID('said'), text);
  said = text;
}

function leader() {
  const g = known.group;
  const s = known.status;
  const body = byID('leader-body');
  if (!g) {
    if (!s) return;
    return draw(body, ['unknown', known.groupError], () => el('div', { class: 'who none' }, el('p', { class: 'name' }, 'Not known'), el('p', null, known.groupError)));
  }
  const e = known.explanation;
  const holding = (e && e.term === g.term && e.holding) || s.holding || '';
  const data = {
    state: g.state, leader: g.leader, site: g.site, term: g.term, since: g.since, cause: g.cause, reason: g.reason, next: g.next,
    holding, note: s.note || '', paused: pause(g), here: s.node, live: live(), today: today(), unled: known.unledSince, link: address(g), elector: g.elector,
  };
  byID('leader').className = g.leader ? g.state.toLowerCase() : 'none';
  draw(body, data, leaderCard);
  say(g.leader ? `${g.leader}, site ${g.site}, ${g.state}, term ${g.term}` : 'No leader');
}

const pause = (g) => (g.requests || []).find((o) => o.kind === 'pause' || o.kind === 'hard-pause');

function leaderCard(d) {
  const facts = [];
  const fact = (name, ...value) => facts.push(el('div', null, el('dt', null, name), el('dd', null, ...value)));
  let who;
  if (d.leader) {
    who = el('div', { class: 'who' }, el('p', { class: 'name' }, d.leader), el('p', { class: 'place' }, d.site ? `site ${d.site}` : 'no site'),
      chip(`state ${d.state.toLowerCase()}`, (d.live ? '' : 'last seen ') + stateWords(d.state)));
    fact('Term', String(d.term));
    if (d.since) fact(d.state === 'READY' ? 'In office' : 'For', ago(Date.parse(d.since)), el('span', { class: 'muted' }, ` since ${clockTime(Date.parse(d.since))}`));
    fact('Elector', d.elector || 'none');
  } else {
    who = el('div', { class: 'who' }, el('p', { class: 'name' }, 'No leader'));
    fact(d.unled && d.unled.before ? 'At least since' : 'Since', d.unled ? clockTime(d.unled.at) : '', el('span', { class: 'muted' }, ' for '), d.unled ? ago(d.unled.at) : '');
    fact('Elector', d.elector || 'none');
  }
  const why = [];
  const because = (name, ...text) => why.push(el('dt', null, name), el('dd', null, ...text));
  if (d.next) because('Next', d.next);
  if (d.reason) because(d.leader ? 'Why it leads' : 'The last decision', d.cause ? chip('cause', d.cause) : '', ` ${d.reason}`);
  if (d.holding) because('Holding', d.holding);
  if (d.note) because('Nobody is elected', d.note);
  if (d.paused) because('Paused', orderWords(d.paused));
  return [
    el('div', { class: 'office' }, who, el('dl', { class: 'facts' }, ...facts), d.leader ? lease(d) : null, controls(d)),
    why.length ? el('dl', { class: 'because' }, ...why) : null,
  ];
}

function stateWords(state) {
  return { READY: 'READY', PROGRESS: 'PROGRESS: taking over', WAITING: 'WAITING: elected, has not taken over' }[state] || state;
}

// lease has a meter where this daemon leads; no other knows it.
function lease(d) {
  if (d.here !== d.leader) {
    return el('p', { class: 'lease muted' }, 'Its lease is known to itself alone', d.link ? [': ', el('a', { href: d.link, rel: 'noreferrer' }, 'its own page')] : '', '.');
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

// address is the leader's page, "" where it can't be told. What the leader publishes is checked: it may be anything.
function address(g) {
  if (!g.api) return '';
  const [, scheme, host, port] = /^(https:\/\/)?(.*):([0-9]{1,5})$/.exec(g.api) || [];
  const own = (g.members.find((m) => m.node === g.leader) || {}).host;
  const name = ['', '0.0.0.0', '[::]'].includes(host) ? own : host;
  return /^(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)$/.test(name || '') ? `${scheme || 'http://'}${name}:${port}/` : '';
}

function problems() {
  const all = (known.group && known.group.problems) || [];
  byID('problems').hidden = all.length === 0;
  list(byID('problems-body'), all.map((text, at) => ({ text, at })), (p) => p.at, (p) => el('li', null, p.text));
}

function members() {
  const g = known.group;
  if (!g) return;
  const able = g.members.filter((m) => m.health === 'ok').length;
  put(byID('members-count'), g.members.length ? `${g.members.length}, of which ${able} may lead` : 'No daemon is registered.');
  byID('search-label').hidden = g.members.length <= manyMembers;
  const wanted = g.members.length > manyMembers ? byID('search').value.trim().toLowerCase() : '';
  const sites = new Map();
  for (const m of g.members) {
    const site = sites.get(m.site) || { site: m.site, all: 0, able: 0, members: [], requests: [] };
    site.all++;
    if (m.health === 'ok') site.able++;
    if (matches(m, wanted)) site.members.push({ ...m, exclusion: exclusionOf(g, m), requests: requestsOf(g, m.node) });
    sites.set(m.site, site);
  }
  for (const site of sites.values()) site.requests = requestsOf(g, `site ${site.site}`);
  list(byID('sites'), [...sites.values()].filter((s) => s.members.length), (s) => s.site, siteColumn);
}

const matches = (m, wanted) => wanted === '' || [m.node, m.site, m.host, m.health, ...m.roles].some((t) => t.toLowerCase().includes(wanted));
const exclusionOf = (g, m) => (g.exclusions || []).find((x) => x.node === m.node && !x.served);
const requestsOf = (g, target) => (g.requests || []).filter((o) => o.target === target && ['cordon', 'drain', 'step-down'].includes(o.kind));

// siteColumn is made once and then refreshed: a long list keeps its place.
function siteColumn(s) {
  const head = el('div', { class: 'site-head' });
  const ul = el('ul', { class: 'members', role: 'list', 'aria-label': `Members of ${s.site || 'no site'}` });
  const column = el('section', { class: 'site', 'aria-label': `Site ${s.site || 'without a name'}` }, head, ul);
  column.refresh = (now) => {
    draw(head, [now.site, now.all, now.able, now.requests.map(lasting)], () => [
      el('h3', null, now.site || 'no site'),
      el('p', { class: 'muted' }, `${now.able} of ${now.all} may lead`),
      ...now.requests.map(standing),
      now.site ? requestButton('Request…', 'site', { site: now.site }, `Request for site ${now.site}`) : null,
    ]);
    const long = now.members.length > 12;
    list(ul, (long ? now.members.toSorted((a, b) => noteworthy(b) - noteworthy(a)) : now.members).map(steady), (m) => m.incarnation, memberCard);
    column.classList.toggle('long', long);
    // A list that scrolls must be reachable by keyboard.
    if (long) ul.tabIndex = 0;
    else ul.removeAttribute('tabindex');
  };
  return column;
}

// noteworthy is more for who comes first in a long list: with a role, then unable to lead.
const noteworthy = (m) => (m.roles.length ? 2 : m.health === 'ok' ? 0 : 1);

// lasting has the time a request ends instead of what is left, which is another each time.
function lasting(o) {
  const { remaining, ...rest } = o;
  return { ...rest, ends: remaining == null ? 0 : Math.round((daemonTime() + milliseconds(remaining)) / 2000) * 2000 };
}

// steady drops what changes with every look.
function steady(m) {
  return { ...m, latency_ms: m.latency_ms == null ? null : Number(m.latency_ms.toPrecision(1)), requests: m.requests.map(lasting) };
}

// standing is a request in force on a node or site.
function standing(request) {
  const o = 'ends' in request ? request : lasting(request);
  return chip('held', [{ cordon: 'cordoned', drain: 'drained', 'step-down': 'stepped down' }[o.kind], o.ends ? [', ', until(o.ends), ' left'] : '']);
}

function memberCard(m) {
  const role = m.roles.find((r) => r !== 'elector') || (m.roles.length ? '' : 'standby');
  const [, rank, verdict] = /^(\d+)\. (.*)$/s.exec(m.why || '') || [null, '', m.why || 'joined since the last election'];
  const facts = [`priority ${m.priority}`, m.host && `${m.host}, pid ${m.pid}`, m.latency_ms != null && `${m.latency_ms} ms`, m.score != null && `score ${Number(m.score.toPrecision(3))}`,
    ...Object.entries(m.labels || {}).map(([k, v]) => `${k}=${v}`)].filter(Boolean);
  return el('li', { class: `member ${role} ${m.health === 'ok' ? '' : 'unfit'}` },
    el('div', { class: 'member-head' },
      el('span', { class: 'rank', title: 'Rank in the last election' }, rank || '–'),
      el('strong', { class: 'node' }, m.node),
      role ? chip(`role ${role}`, role) : null,
      m.roles.includes('elector') ? chip('role elector', 'elector') : null,
      m.policy_drift ? chip('held', 'policy drift') : null,
      requestButton('Request…', 'node', { node: m.node }, `Request for ${m.node}`)),
    el('p', { class: 'health' }, health(m)),
    rank || m.health === 'ok' ? el('p', { class: 'verdict' }, verdict) : null,
    el('p', { class: 'muted figures' }, facts.join(' · ')));
}

function health(m) {
  if (m.health === 'ok') return el('span', { class: 'ok' }, 'ok');
  const ends = m.exclusion ? Date.parse(m.exclusion.time) + milliseconds(m.exclusion.for) : NaN;
  if (!Number.isNaN(ends)) return [el('span', { class: 'bad' }, `excluded, strike ${m.exclusion.strikes}: ${m.exclusion.reason}`), ' ', chip('held', [until(ends), ' left'])];
  if (m.requests.length) return [...m.requests.map(standing), ` by ${m.requests[0].by}${m.requests[0].reason ? `: ${m.requests[0].reason}` : ''}`];
  return el('span', { class: 'bad' }, m.health);
}

function orderWords(o) {
  return `${o.kind === 'hard-pause' ? 'no member is elected, not even to replace a leader that fails' : 'policy does not move the leader; a leader that fails is still replaced'}; by ${o.by}${o.reason ? ` (${o.reason})` : ''}`;
}

const kinds = { 'pause': 'paused', 'hard-pause': 'paused hard', 'move': 'moved to', 'reelect': 'election asked for', 'cordon': 'cordoned', 'drain': 'drained', 'step-down': 'stepped down' };
const endings = { 'pause': 'resume', 'hard-pause': 'resume', 'move': 'reelect', 'cordon': 'uncordon', 'drain': 'uncordon', 'step-down': 'uncordon' };

// targetOf is what a request to end another is for. A site is told in words; a node may have such a name, too.
function targetOf(o, g) {
  if (!['cordon', 'drain', 'step-down'].includes(o.kind)) return undefined;
  const [, site] = /^site (.*)$/s.exec(o.target) || [];
  return site && !g.members.some((m) => m.node === o.target) ? { site } : { node: o.target };
}

function requests() {
  const g = known.group;
  if (!g) return;
  const rows = [
    ...(g.requests || []).map((o) => ({ what: `${kinds[o.kind] || o.kind} ${o.target || ''}`.trim(), by: o.by, why: o.reason || '', at: Date.parse(o.time), ends: lasting(o).ends, end: endings[o.kind], target: targetOf(o, g) })),
    ...(g.exclusions || []).map((x) => ({
      what: `excluded ${x.node}, strike ${x.strikes}`, by: 'watchdog', why: x.reason, at: Date.parse(x.time), ends: Date.parse(x.time) + milliseconds(x.for), served: x.served, end: 'clear-strikes', target: { node: x.node },
    })),
  ];
  draw(byID('requests-body'), [rows, today()], () => {
    if (!rows.length) return el('p', { class: 'muted' }, 'None: policy alone decides.');
    return table('What is in force', ['What', 'By', 'Why', 'Since', 'Ends', ''], rows.map((r) => [
      el('strong', null, r.what), r.by, r.why || '–', clockTime(r.at),
      r.served ? 'over; the strike counts' : r.ends ? [until(r.ends), ' left'] : 'when it is ended',
      r.end ? requestButton(r.end === 'clear-strikes' ? 'Clear strikes…' : 'End…', r.end, r.target, `End: ${r.what}`) : '',
    ]));
  });
}

// table becomes a list of cards on a narrow screen; roles keep it a table for who hears it.
function table(caption, head, rows) {
  return el('div', { class: 'scroll' }, el('table', { role: 'table' }, el('caption', { class: 'spoken' }, caption),
    el('thead', { role: 'rowgroup' }, el('tr', { role: 'row' }, ...head.map((h) => el('th', { role: 'columnheader', scope: 'col' }, h || el('span', { class: 'spoken' }, 'Request'))))),
    el('tbody', { role: 'rowgroup' }, ...rows.map((cells) => el('tr', { role: 'row' }, ...cells.map((c, i) => el('td', { role: 'cell', 'data-label': head[i] }, c)))))));
}

function ranking() {
  const e = known.explanation;
  const body = byID('why-body');
  if (!e) return draw(body, known.explainError, () => el('p', { class: 'muted' }, known.explainError || 'Not known yet.'));
  draw(body, [e, allRanks], () => {
    const rankers = [...new Set(e.members.flatMap((m) => (m.scores || []).filter((s) => s.words || s.value).map((s) => s.ranker)))];
    const shown = allRanks ? e.members : e.members.slice(0, firstRanks);
    const c = e.circumstances || {};
    const after = c.cause && c.node ? `, after: ${c.cause} of ${c.node}${c.site ? ` (${c.site})` : ''}` : '';
    return [
      el('p', { class: 'muted' }, `Now, by policy ${e.preset}, revision ${e.policy_revision}${after}${(c.failed || []).length ? `; failed: ${c.failed.join(', ')}` : ''}.`),
      ...(e.notes || []).map((n) => el('p', { class: 'note' }, n)),
      e.members.length ? table('The members, best first', ['Rank', 'Node', ...rankers, 'Filters'], shown.map((m) => [
        m.rank ? String(m.rank) : '–', [el('strong', { class: m.node === e.leader ? 'leads' : null }, m.node), m.site ? el('span', { class: 'muted' }, ` ${m.site}`) : null],
        ...rankers.map((r) => ((s) => (s && (s.words || s.value)) || '–')((m.scores || []).find((s) => s.ranker === r))),
        (m.refusals || []).length ? el('span', { class: 'bad' }, m.refusals.map((f) => `${f.filter}: ${f.why}`).join('; ')) : 'passed',
      ])) : null,
      shown.length < e.members.length ? el('button', { type: 'button', onclick: () => { allRanks = true; ranking(); } }, `Show all ${e.members.length}`) : null,
      changes(e),
    ];
  });
}

function changes(e) {
  const all = e.changes || [];
  if (!all.length) return null;
  return el('details', { open: all.length <= 8 }, el('summary', null, 'What would change it'), el('ul', null, ...all.slice(0, 60).map((c) => el('li', null, c)),
    all.length > 60 ? el('li', null, `and ${all.length - 60} more: zkelectd explain`) : null));
}

function history() {
  if (!known.terms) return;
  const terms = known.terms.toReversed().map((t) => ({ ...t, today: today() }));
  list(byID('history-body'), terms, (t) => t.term, (t) => el('li', { class: t.outcome === 'READY' ? 'ready' : 'failed' },
    el('p', { class: 'turn' }, el('strong', null, t.node), t.site ? el('span', { class: 'muted' }, ` ${t.site}`) : null,
      t.previous && t.previous !== t.node ? el('span', { class: 'muted' }, ` after ${t.previous}`) : null, ' ', chip('cause', t.cause)),
    el('p', null, t.reason),
    t.outcome && t.outcome !== 'READY' ? el('p', { class: 'bad' }, t.outcome) : null,
    el('p', { class: 'muted figures' }, [clockTime(Date.parse(t.time)), `term ${t.term}`, t.by && `by ${t.by}`, t.leaderless && `${short(t.leaderless)} without a leader`, t.to_ready && `ready after ${short(t.to_ready)}`].filter(Boolean).join(' · '))));
}

// tick keeps the countdowns and the lease.
export function tick() {
  const now = daemonTime();
  for (const e of document.querySelectorAll('[data-until]')) put(e, words(Number(e.dataset.until) - now));
  // What is not known to go on does not grow.
  if (live()) for (const e of document.querySelectorAll('[data-since]')) put(e, words(now - Number(e.dataset.since)));
  const meter = byID('lease');
  if (meter) drawLease(meter);
}

// drawLease shows what is left, and nothing where that is not vouched for.
function drawLease(meter) {
  const l = known.lease;
  const g = known.group;
  const total = milliseconds(known.status.lease) || 0;
  const left = live() && l && l.holds && l.term === g.term ? l.left - passed(l.asked) : 0;
  const share = total > 0 ? Math.min(1, Math.max(0, left / total)) : 0;
  meter.firstElementChild.style.transform = `scaleX(${share})`;
  meter.className = `meter ${share > 0.4 ? 'good' : share > 0 ? 'tight' : 'over'}`;
  const text = left > 0 ? `${(left / 1000).toFixed(1)} s of ${(total / 1000).toFixed(1)} s` : !live() ? 'not vouched for' : l && !l.holds && l.why ? l.why : 'not confirmed';
  meter.setAttribute('aria-valuemax', (total / 1000).toFixed(1));
  meter.setAttribute('aria-valuenow', (Math.max(0, left) / 1000).toFixed(1));
  meter.setAttribute('aria-valuetext', text);
  put(byID('lease-left'), text);
}
