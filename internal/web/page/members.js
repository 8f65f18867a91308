// The members by site: a card for each that is registered, and a ghost for each that is absent.
import { daemonTime, parseDuration } from './clock.js';
import { byID, el, render, renderList, setText } from './dom.js';
import { chip, countdown, identityOf, isCordon, nodeName, rankOf, requestButton, timeAgo } from './parts.js';
import { model } from './source.js';

const manyMembers = 24; // with more members there is a search box
const longSite = 12; // with more members the list of a site scrolls

// initMembers makes the search box work.
export function initMembers() {
  byID('search').addEventListener('input', () => renderMembers());
}

export function renderMembers() {
  const g = model.group;
  if (!g) return;
  const absent = g.absent || [];
  const total = g.members.length + absent.length;
  byID('search-label').hidden = total <= manyMembers;
  const query = total > manyMembers ? byID('search').value.trim().toLowerCase() : '';
  const sites = new Map();
  const siteOf = (m) => {
    if (!sites.has(m.site)) sites.set(m.site, { site: m.site, all: 0, eligible: 0, members: [], absent: [], requests: cordonsOf(g, `site ${m.site}`) });
    return sites.get(m.site);
  };
  let eligible = 0;
  for (const m of g.members) {
    const site = siteOf(m);
    site.all++;
    const why = refusalOf(m);
    if (!why) {
      site.eligible++;
      eligible++;
    }
    if (matches([m.node, m.site, m.host, why, ...m.roles], query)) site.members.push(withoutNoise(g, m, why));
  }
  for (const m of absent) if (matches([m.node, m.site, m.state], query)) siteOf(m).absent.push(m);
  setText(byID('members-count'), countText(g, eligible, absent));
  renderList(byID('sites'), [...sites.values()].filter((s) => s.members.length + s.absent.length), (s) => s.site, siteColumn);
}

function countText(g, eligible, absent) {
  const lost = absent.filter((m) => m.state === 'lost').length;
  return [g.members.length ? `${eligible} of ${g.members.length} eligible` : 'No daemon is registered.', g.members.length < g.members_expected ? `${g.members.length} of ${g.members_expected} expected` : '', lost ? `${lost} lost` : ''].filter(Boolean).join(', ');
}

// refusalOf returns why a member cannot lead under the policy in force, or ''.
function refusalOf(m) {
  if (m.eligible !== 'yes') return m.eligible;
  return ((rankOf(m.node) || {}).refusals || []).map((r) => r.reason).join('; ');
}

const matches = (texts, query) => query === '' || texts.some((t) => (t || '').toLowerCase().includes(query));
const cordonsOf = (g, target) => (g.requests || []).filter((r) => r.target === target && isCordon(r)).map(withEnd);

// withEnd replaces a request's remaining time, which differs in every response, by the time when it ends.
export function withEnd(request) {
  const { remaining, ...rest } = request;
  return { ...rest, ends: remaining == null ? 0 : Math.round((daemonTime() + parseDuration(remaining)) / 2000) * 2000 };
}

// withoutNoise returns what a card shows, without what changes in every response.
function withoutNoise(g, m, why) {
  return {
    ...m, why, reason: '', score: null, latency_ms: m.latency_ms == null ? null : Number(m.latency_ms.toPrecision(1)), requests: cordonsOf(g, m.node), rank: (rankOf(m.node) || {}).rank || 0,
    exclusion: (g.exclusions || []).find((x) => x.node === m.node && !x.expired), identity: identityOf(m),
  };
}

// siteColumn is created once and then refreshed, so that a long list keeps its scroll position.
function siteColumn(s) {
  const head = el('div', { class: 'site-head' });
  const ul = el('ul', { class: 'members', role: 'list', 'aria-label': `Members of ${s.site || 'no site'}` });
  const column = el('section', { class: 'site', 'aria-label': `Site ${s.site || 'without a name'}` }, head, ul);
  column.refresh = (now) => {
    render(head, [now.site, now.all, now.eligible, now.requests], () => [
      el('h3', null, now.site || 'no site'),
      el('p', { class: 'muted' }, now.all ? `${now.eligible} of ${now.all} eligible` : 'no member left'),
      ...now.requests.map(requestChip),
      now.site && now.all ? requestButton('Request…', 'site', { site: now.site }, `Request for site ${now.site}`) : null,
    ]);
    const long = now.members.length + now.absent.length > longSite;
    const order = long ? now.members.toSorted((a, b) => sortRank(b) - sortRank(a)) : now.members;
    const ghosts = now.absent.map((m) => ({ ...m, incarnation: `absent ${m.node}` }));
    renderList(ul, long ? [...ghosts, ...order] : [...order, ...ghosts], (m) => m.incarnation, (m) => (m.state ? ghostCard(m) : memberCard(m)));
    column.classList.toggle('long', long);
    // A list that scrolls must be reachable by keyboard.
    if (long) ul.tabIndex = 0;
    else ul.removeAttribute('tabindex');
  };
  return column;
}

// sortRank is higher for members that come first in a long list: those with a role, then ineligible ones.
const sortRank = (m) => (m.roles.length ? 2 : m.why ? 1 : 0);

// requestChip shows a request in force on a node or site.
function requestChip(r) {
  return chip('in-force', [{ 'cordon': 'cordoned', 'drain': 'drained' }[r.kind], r.ends ? [', ', countdown(r.ends), ' left'] : '']);
}

function memberCard(m) {
  const role = m.roles.find((r) => r !== 'elector') || (m.roles.length ? '' : 'standby');
  const facts = [`priority ${m.priority}`, m.latency_ms != null && `${m.latency_ms} ms`, m.host !== m.node && m.host, m.version, ...Object.entries(m.labels || {}).map(([k, v]) => `${k}=${v}`)].filter(Boolean);
  return el('li', { class: `member ${role} ${m.why ? 'ineligible' : ''}` },
    el('div', { class: 'member-head' },
      el('span', { class: 'rank', title: 'Rank now' }, m.rank ? String(m.rank) : '–'),
      nodeName(m.node, 'node', m.identity),
      role && role !== 'standby' ? chip(`role ${role}`, role) : null,
      m.roles.includes('elector') ? chip('role elector', 'elector') : null,
      m.policy_drift ? chip('in-force', 'policy drift') : null,
      requestButton('Request…', 'node', { node: m.node }, `Request for ${m.node}`)),
    m.why ? el('p', { class: 'health' }, whyNot(m)) : m.standby ? el('p', { class: 'health' }, `standby ${m.standby.state}`) : null,
    el('p', { class: 'muted figures' }, facts.join(' · ')));
}

function whyNot(m) {
  const ends = m.exclusion ? Date.parse(m.exclusion.time) + parseDuration(m.exclusion.for) : NaN;
  if (!Number.isNaN(ends)) return [el('span', { class: 'bad' }, `excluded, strike ${m.exclusion.strikes}: ${m.exclusion.reason}`), ' ', chip('in-force', [countdown(ends), ' left'])];
  if (m.requests.length) return [...m.requests.map(requestChip), ` by ${m.requests[0].by}${m.requests[0].reason ? `: ${m.requests[0].reason}` : ''}`];
  return el('span', { class: 'bad' }, m.why);
}

// ghostCard shows a node that has been a member.
function ghostCard(m) {
  const meaning = { lost: 'It has not said that it leaves.', stopped: 'Its daemon was stopped.', removed: 'The group was removed from its configuration.' };
  return el('li', { class: `member ghost ${m.state}` },
    el('div', { class: 'member-head' },
      el('span', { class: 'rank' }, '–'),
      el('strong', { class: 'node' }, m.node),
      chip(`role ${m.state === 'lost' ? 'in-force' : ''}`, [m.state.toUpperCase(), m.left ? [' ', timeAgo(Date.parse(m.left)), ' ago'] : null]),
      requestButton('Forget…', 'forget', { node: m.node }, `Forget ${m.node}`)),
    el('p', { class: 'muted figures' }, meaning[m.state] || ''));
}
