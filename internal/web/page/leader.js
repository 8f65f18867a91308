// The card of the leader: on the left who leads, on the right who is next and who led before.
import { elapsed, formatGap, formatTime, parseDuration } from './clock.js';
import { byID, el, render, setText } from './dom.js';
import { chip, isLive, nodeName, outageOf, pageURL, pauseOf, requestButton, timeAgo, timeSince, today } from './parts.js';
import { lastFailover, reignBar, reigns } from './reigns.js';
import { model } from './source.js';

let announced = '';

// announce makes screen readers announce a change of leadership.
function announce(text) {
  if (announced !== '' && text !== announced) setText(byID('announcement'), text);
  announced = text;
}

export function renderLeader() {
  const g = model.group;
  const s = model.status;
  const body = byID('leader-body');
  if (!g) {
    if (!s) return;
    return render(body, ['unknown', model.groupError], () => el('div', { class: 'who none' }, el('p', { class: 'name' }, 'Unknown'), el('p', null, model.groupError)));
  }
  const e = model.explanation || {};
  const own = g.members.find((m) => m.node === g.leader) || {};
  const data = {
    state: g.state, leader: g.leader, site: g.site, term: g.term, since: g.since, cause: g.cause, reason: g.reason, value: g.value || '', next: g.next, waiting: g.waiting,
    blocked: (e.term === g.term && e.preemption_blocked) || s.preemption_blocked || '', note: g.no_leader || s.note || '', paused: pauseOf(g), proposal: (g.requests || []).find((r) => r.kind === 'proposal'), here: s.node, live: isLive(), unconfirmed: g.lease_unconfirmed || '',
    failsafe: failsafeOf(g, s), today: today(), leaderlessSince: model.leaderlessSince, link: pageURL(g.api, own.host), elector: g.elector, heir: heirOf(g, e), deputies: g.deputies || [], failover: lastFailover(), terms: (model.terms || []).length, reigns: reigns(),
  };
  byID('leader').className = g.leader ? g.state.toLowerCase() : 'none';
  render(body, data, (d) => [el('div', { class: 'leader-facts' }, leaderFacts(d)), el('dl', { class: 'reasons' }, leaderContext(d))]);
  announce(g.leader ? `${g.leader}, site ${g.site}, ${g.state}, term ${g.term}` : 'No leader');
}

// heirOf returns who is elected next if the leader is lost: {node, site, known}. The forecast stands in for an elector that publishes none.
function heirOf(g, e) {
  if (g.leader && g.heir) return { node: g.heir, site: g.heir_site || '', known: true };
  const m = g.members.find((m) => m.node === e.heir) || {};
  return { node: e.heir || '', site: m.site || '', known: Boolean(g.leader) && e.leader === g.leader };
}

// failsafeOf returns what is shown of failsafe mode: {state, level, text, since}; null if the group does not use it.
function failsafeOf(g, s) {
  const f = g.failsafe;
  const own = s.failsafe || {};
  const outage = outageOf(s);
  if (outage) {
    return outage.leads ? { state: 'active', level: 'in-force', text: `ZooKeeper does not answer, and ${outage.leads} works on because ${outage.members.join(', ')} promised to let nobody take over`, since: outage.since }
      : { state: 'active', level: 'in-force', text: `ZooKeeper does not answer, and ${s.node} has promised the leader to let nobody take over` };
  }
  if (!f) return null;
  const members = (f.members || []).join(', ');
  if ((f.waits_for || []).length) return { state: f.stuck ? 'stuck' : 'waits', level: 'in-force', text: `the last leader may still work, until ${f.waits_for.join(' or ')} says otherwise` };
  if (!members) return { state: 'not ready', level: 'in-force', text: 'without ZooKeeper the leader would stop: nobody could promise to let nobody else take over' };
  if (s.node === g.leader && own.enabled) {
    return own.ready ? { state: 'ready', level: 'ready', text: `would work on without ZooKeeper, by promises of ${members}` } : { state: 'not ready', level: 'in-force', text: 'without ZooKeeper the leader would stop' };
  }
  return { state: 'on', level: '', text: `works on without ZooKeeper if all of these promise to let nobody take over: ${members}` };
}

const fact = (name, ...value) => el('div', null, el('dt', null, name), el('dd', null, ...value));

function leaderFacts(d) {
  const facts = [];
  let who;
  if (d.leader) {
    who = el('div', { class: 'who' }, el('p', { class: 'name' }, d.leader), el('p', { class: 'place' }, d.site ? `site ${d.site}` : 'no site'),
      chip(`state ${d.state.toLowerCase()}`, (d.live ? '' : 'last seen ') + stateText(d.state)));
    if (d.since) facts.push(fact(d.state === 'READY' ? 'READY for' : 'For', timeSince(Date.parse(d.since))));
    facts.push(fact('Term', String(d.term)));
  } else {
    who = el('div', { class: 'who' }, el('p', { class: 'name' }, 'No leader'));
    const since = d.leaderlessSince;
    if (since) facts.push(fact(since.before ? 'For at least' : 'For', timeSince(since.at), el('span', { class: 'muted' }, `, since ${formatTime(since.at)}`)));
  }
  facts.push(fact('Elector', d.elector || 'none'));
  return [who, el('dl', { class: 'facts' }, ...facts), d.leader ? leaseView(d) : null, controls(d)];
}

// leaderContext returns the right half: who is next, why this member leads, and who led before.
function leaderContext(d) {
  const list = [];
  const add = (name, ...text) => list.push(el('div', null, el('dt', null, name), el('dd', null, ...text)));
  if (d.next) add('Next', d.next);
  else if (d.heir.known) add('Next in line', d.heir.node ? [nodeName(d.heir.node, 'heir'), el('span', { class: 'muted' }, `${d.heir.site ? ` ${d.heir.site}` : ''}, if ${d.leader} is lost`)] : el('span', { class: 'bad' }, `nobody: if ${d.leader} is lost, there is no leader`));
  if (d.deputies.length) add('Deputies', d.deputies.join(', '), el('span', { class: 'muted' }, ` (to replace ${d.leader} if it does not renew its lease)`));
  if (d.waiting) add('Waiting', d.waiting);
  if (d.note) add('Why there is no leader', d.note);
  if (d.proposal) add('A person must decide', requestButton(`Whether ${d.proposal.target} leads…`, 'approve', { node: d.proposal.target }), d.proposal.answer ? ` ${d.proposal.answer}` : '');
  if (d.reason) add(d.leader ? 'Why it leads' : 'The last decision', d.cause ? chip('cause', d.cause) : '', ` ${d.reason}`);
  if (d.value) add('Value of the work', d.value);
  if (d.blocked) add('Preemption blocked', d.blocked);
  if (d.paused) add('Paused', pauseText(d.paused));
  if (d.failsafe) add('Failsafe mode', chip(d.failsafe.level, d.failsafe.state), ` ${d.failsafe.text}`, d.failsafe.since ? [', since ', timeAgo(d.failsafe.since), ' ago'] : '');
  if (d.failover) add('Last failover', failoverText(d.failover));
  else if (d.terms) add('Last failover', el('span', { class: 'muted' }, `none in the last ${d.terms === 1 ? 'term' : `${d.terms} terms`}`));
  if (d.reigns) add(['Who led in the last ', timeAgo(d.reigns.begin)], ...reignBar(d.reigns, d.leader));
  return list;
}

function failoverText(t) {
  return [timeAgo(Date.parse(t.time)), ' ago: ', t.previous ? `${t.previous} → ` : '', el('strong', null, t.node), ' ', chip('cause', t.cause),
    t.leaderless ? el('span', { class: 'muted' }, ` ${formatGap(t.leaderless)} without a leader`) : null];
}

function stateText(state) {
  return { READY: 'READY', PROGRESS: 'PROGRESS: taking over', WAITING: 'WAITING: elected, has not taken over' }[state] || state;
}

function pauseText(r) {
  return `${r.kind === 'hard-pause' ? 'the leader stays, and nobody replaces it, not even if it fails' : 'policy does not replace a healthy leader; a leader that fails is still replaced'}; by ${r.by}${r.reason ? ` (${r.reason})` : ''}`;
}

// leaseView returns a meter if this daemon leads. Other daemons do not know the lease.
function leaseView(d) {
  if (d.here !== d.leader) {
    if (d.unconfirmed) return el('p', { class: 'lease bad' }, `The lease is not confirmed: ${d.unconfirmed}.`);
    return el('p', { class: 'lease muted' }, 'Only the leader knows its lease', d.link ? [': see ', el('a', { href: d.link, rel: 'noreferrer' }, 'its own page')] : '', '.');
  }
  return el('div', { class: 'lease' }, el('span', { id: 'lease-name' }, 'Lease'),
    el('div', { id: 'lease', class: 'meter', role: 'meter', 'aria-labelledby': 'lease-name', 'aria-valuemin': 0, 'aria-valuemax': 1, 'aria-valuenow': 0 }, el('span', null)),
    el('span', { id: 'lease-left', class: 'figure' }));
}

function controls(d) {
  return el('p', { class: 'controls' },
    requestButton('Move…', 'move'),
    d.paused ? requestButton('Resume…', 'resume') : requestButton('Pause…', 'pause'));
}

// renderLease shows the remaining time of the lease, or nothing if it is not confirmed.
export function renderLease() {
  const meter = byID('lease');
  if (!meter) return;
  const l = model.lease;
  const g = model.group;
  const total = parseDuration(model.status.lease) || 0;
  const left = isLive() && l && l.holds && l.term === g.term ? l.left - elapsed(l.requestedAt) : 0;
  const share = total > 0 ? Math.min(1, Math.max(0, left / total)) : 0;
  meter.firstElementChild.style.transform = `scaleX(${share})`;
  meter.className = `meter ${share > 0.4 ? 'good' : share > 0 ? 'tight' : 'over'}`;
  const text = left > 0 ? `${(left / 1000).toFixed(1)} s of ${(total / 1000).toFixed(1)} s` : !isLive() ? 'unknown' : l && !l.holds && l.reason ? l.reason : 'not confirmed';
  meter.setAttribute('aria-valuemax', (total / 1000).toFixed(1));
  meter.setAttribute('aria-valuenow', (Math.max(0, left) / 1000).toFixed(1));
  meter.setAttribute('aria-valuetext', text);
  setText(byID('lease-left'), text);
}
