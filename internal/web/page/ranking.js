// The ranking of the members now: a line of numbers for each.
import { byID, el, render } from './dom.js';
import { identityOf, nodeName, table } from './parts.js';
import { model } from './source.js';

const firstRanks = 20; // initial number of rows
const maxChanges = 60;

let allRanks = false;

export function renderRanking() {
  const e = model.explanation;
  const body = byID('why-body');
  if (!e) return render(body, model.explainError, () => el('p', { class: 'muted' }, model.explainError || 'Not available yet.'));
  render(body, [e, allRanks, (model.group || {}).members?.map(identityOf)], () => {
    const shown = allRanks ? e.members : e.members.slice(0, firstRanks);
    const c = e.circumstances || {};
    const after = c.cause && c.node ? `, after: ${c.cause} of ${c.node}${c.site ? ` (${c.site})` : ''}` : '';
    return [
      el('p', { class: 'muted' }, `Now, by policy ${e.policy_type}, revision ${e.policy_revision}${after}${(c.failed || []).length ? `; failed: ${c.failed.join(', ')}` : ''}.`),
      (e.roll_call || []).length ? el('p', { class: 'muted' }, `The leader was elected by the answers of: ${e.roll_call.map(answerText).join(', ')}.`) : null,
      ...(e.notes || []).map((n) => el('p', { class: 'note' }, n)),
      e.members.length ? rankingTable(e, shown) : null,
      shown.length < e.members.length ? el('button', { type: 'button', onclick: () => { allRanks = true; renderRanking(); } }, `Show all ${e.members.length}`) : null,
      changesList(e),
    ];
  });
}

// answerText says what a member has answered to the roll call.
const answerText = (a) => `${a.node} ${a.score == null ? `none (${a.why})` : a.score}`;

// rankingTable has a column for each ranker that tells members apart. The oldest member wins only if nothing else does: its sequence
// is in the tooltip.
function rankingTable(e, shown) {
  const scoreOf = (m, ranker) => (m.scores || []).find((s) => s.ranker === ranker);
  const rankers = [...new Set(e.members.flatMap((m) => (m.scores || []).filter((s) => s.words || s.value).map((s) => s.ranker)))].filter((r) => r !== 'oldest');
  return table('ranking', 'The members, best first', ['Rank', 'Node', ...rankers], shown.map((m) => [
    rankCell(m), nodeCell(e, m), ...rankers.map((r) => scoreCell(scoreOf(m, r)))]));
}

function rankCell(m) {
  if (m.rank) return String(m.rank);
  const why = (m.refusals || []).map((f) => `${f.filter}: ${f.reason}`).join('; ');
  return el('span', { class: 'bad', title: why }, '✕', el('span', { class: 'visually-hidden' }, `not eligible: ${why}`));
}

function nodeCell(e, m) {
  const member = model.group && model.group.members.find((other) => other.node === m.node);
  return [nodeName(m.node, m.node === e.leader ? 'leads' : null, member ? identityOf(member) : null), m.site ? el('span', { class: 'muted' }, ` ${m.site}`) : null];
}

// scoreCell shows the number, and the words in a tooltip.
function scoreCell(s) {
  if (!s) return '–';
  if (s.value == null) return el('span', { title: s.words }, '–');
  return el('span', { title: s.words }, String(Number.isInteger(s.value) ? s.value : Number(s.value.toPrecision(3))));
}

function changesList(e) {
  const all = e.changes || [];
  if (!all.length) return null;
  return el('details', null, el('summary', null, 'What would change it'), el('ul', null, ...all.slice(0, maxChanges).map((c) => el('li', null, c)),
    all.length > maxChanges ? el('li', null, `and ${all.length - maxChanges} more: zkelectd explain`) : null));
}
