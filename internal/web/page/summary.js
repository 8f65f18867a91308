// The strip on top of the page: the state of the group in one line.
import { daemonTime, parseDuration } from './clock.js';
import { byID, el, render } from './dom.js';
import { countdown, isLive, moveOf, pauseOf, rankOf, timeSince } from './parts.js';
import { model } from './source.js';

export function renderSummary() {
  const g = model.group;
  const box = byID('summary');
  box.hidden = !g;
  if (!g) return;
  const parts = describe(g);
  const level = { critical: 'bad', warning: 'warn', ok: 'good' }[g.severity] || 'warn';
  box.className = isLive() ? level : 'old';
  render(box, [isLive(), parts], () => [isLive() ? null : el('span', null, 'Last seen: '), ...parts.map((p) => part(p))]);
}

function part(p) {
  const text = [p.text, p.since ? [' ', timeSince(p.since)] : null, p.ends ? [', ', countdown(p.ends), ' left'] : null];
  return el('span', { class: `part ${p.level || ''}` }, p.href ? el('a', { href: p.href }, text) : text);
}

// describe returns the parts of the strip. Those with a level need attention.
function describe(g) {
  const parts = [leaderPart(g), successors(g)];
  for (const r of [pauseOf(g), moveOf(g)].filter(Boolean)) {
    const ends = r.remaining == null ? 0 : Math.round((daemonTime() + parseDuration(r.remaining)) / 2000) * 2000;
    parts.push({ text: { 'pause': 'paused', 'hard-pause': 'paused hard', 'move': `moved to ${r.target}` }[r.kind], since: Date.parse(r.time), ends, level: 'warn' });
  }
  const lost = (g.absent || []).filter((m) => m.state === 'lost');
  if (g.severity === 'critical') parts.unshift({ text: `CRITICAL: ${(g.severity_reasons || [])[0]}`, level: 'bad' });
  if (g.lease_unconfirmed) parts.push({ text: `lease not confirmed: ${g.lease_unconfirmed}`, level: 'warn' });
  if (lost.length) parts.push({ text: `lost: ${lost.map((m) => m.node).join(', ')}`, level: 'warn', href: '#members' });
  const act = (g.problems || []).filter((p) => !(g.passing_problems || []).includes(p)).length;
  if (act) parts.push({ text: act === 1 ? '1 problem to act on' : `${act} problems to act on`, level: 'warn', href: '#problems' });
  return parts;
}

function leaderPart(g) {
  switch (g.state) {
    case 'READY': return { text: `${g.leader} leads` };
    case 'PROGRESS': return { text: `${g.leader} takes over`, level: 'warn' };
    case 'WAITING': return { text: `${g.leader} is elected`, level: 'warn' };
  }
  return { text: 'No leader', level: 'bad' };
}

// successors counts the members that can lead under the policy in force.
function successors(g) {
  const n = g.members.filter((m) => m.node !== g.leader && m.eligible === 'yes' && ((rankOf(m.node) || { rank: 1 }).rank > 0)).length;
  return { text: `${n || 'nobody'} can ${g.leader ? 'take over' : 'lead'}`, level: n ? '' : g.leader ? 'warn' : 'bad' };
}
