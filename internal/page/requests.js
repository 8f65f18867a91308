// Submitting requests: who may, a dialog that says what a request does before it is submitted, and the daemon's answer. Whether
// somebody may is the daemon's business: the page tries, and shows the refusal.
import { byID, draw, el, put } from './dom.js';
import { clockTime } from './clock.js';
import { known, refresh } from './source.js';

const storedAs = 'zkelectd token'; // for this tab only, so that a reload does not ask again
const answerLimit = 15000;

// kinds are the requests: what the button says, what a request does, and which fields it has.
const kinds = {
  'move': { name: 'Move leadership', does: (t, g) => `${g.leader ? `Leadership moves from ${g.leader} to ${t}` : `${t} leads`}, and stays there until the request ends.`, lasts: true, force: true },
  'step-down': { name: 'Step down', does: (t, g) => `${g.leader || 'The leader'} hands over to the next best, and is not chosen again until the request ends (10 min if nothing is said).`, lasts: true },
  'pause': { name: 'Pause', does: () => 'Policy no longer moves the leader. A leader that dies is still replaced.', lasts: true, hard: true },
  'resume': { name: 'Resume', does: () => 'The pause ends. Policy decides again, and may move leadership at once.' },
  'reelect': { name: 'Re-elect by policy', does: () => 'The move ends. Policy decides again, and may move leadership at once.' },
  'cordon': { name: 'Cordon', does: (t) => `${t} will not be elected. If it leads, it goes on.`, lasts: true },
  'drain': { name: 'Drain', does: (t) => `${t} will not be elected. If it leads, leadership moves away.`, lasts: true, force: true },
  'uncordon': { name: 'Uncordon', does: (t) => `${t} may be chosen again, and may lead at once.` },
  'clear-strikes': { name: 'Clear strikes', does: (t) => `The strikes of ${t} are cleared. It may be chosen again at once.` },
};

let token = sessionStorage.getItem(storedAs) || '';
let who = { can_operate: false, why: '' };
let asked = null; // the status for which the daemon was last asked who this is

const credentials = () => (token ? { Authorization: `Bearer ${token}` } : {});
const inWords = (target) => (target.site ? `site ${target.site}` : target.node);

// permission keeps the button that says who submits the requests. The daemon is asked again when it is another one.
export async function permission() {
  const daemon = known.status && known.status.incarnation;
  if (!daemon || daemon === asked) return;
  asked = daemon;
  who = await whoami(token).catch(() => ({ can_operate: false, why: 'the daemon has not said who may' }));
  show();
}

function show() {
  put(byID('permission'), who.can_operate ? `Operator: ${who.name}` : 'Use a token…');
}

async function whoami(secret) {
  const response = await fetch('v1/whoami', { cache: 'no-store', headers: secret ? { Authorization: `Bearer ${secret}` } : {}, signal: AbortSignal.timeout(answerLimit) });
  return response.json();
}

// dialog shows a form and removes it when it is closed.
function dialog(title, submit, ...content) {
  const form = el('form', { method: 'dialog' }, el('h2', { id: 'dialog-title' }, title), ...content);
  const box = el('dialog', { 'aria-labelledby': 'dialog-title' }, form);
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    submit();
  });
  box.addEventListener('close', () => box.remove());
  document.body.append(box);
  box.showModal();
  return box;
}

const field = (name, control, hint) => el('label', null, el('span', null, name), control, hint ? el('small', null, hint) : null);
const cancel = () => el('button', { type: 'button', onclick: (e) => e.target.closest('dialog').close() }, 'Cancel');

// tokenDialog takes a token, and forgets it.
export function tokenDialog() {
  const input = el('input', { type: 'password', autocomplete: 'off', spellcheck: 'false', required: true });
  const refusal = el('p', { class: 'refusal', role: 'alert' });
  const use = async () => {
    const secret = input.value.trim();
    const answer = await whoami(secret).catch((e) => ({ why: e instanceof TypeError ? 'this cannot be a token, or there is no connection' : 'the daemon does not answer' }));
    if (!answer.can_operate) return put(refusal, `Refused: ${answer.why || answer.error || 'the daemon takes no tokens'}`);
    token = secret;
    sessionStorage.setItem(storedAs, token);
    who = answer;
    show();
    box.close();
  };
  const forget = () => {
    token = '';
    sessionStorage.removeItem(storedAs);
    asked = null;
    permission();
    box.close();
  };
  const box = dialog('Token', use,
    el('p', null, who.can_operate ? `Requests are submitted as ${who.name} (${who.how}).` : `This page may not submit requests: ${who.why || 'it has no token'}.`),
    el('p', { class: 'muted' }, 'Whoever runs the daemon gives out tokens: http.token_file. It stays in this tab, until that is closed.'),
    field('Token', input), refusal,
    el('p', { class: 'actions' }, token ? el('button', { type: 'button', onclick: forget }, 'Forget the token') : null, cancel(), el('button', { type: 'submit', class: 'do' }, 'Use it')));
}

// requestDialog asks for what else a request needs, and submits it. what is a kind, or node or site: then the kind is chosen.
export function requestDialog(what, target) {
  const g = known.group;
  const choices = kinds[what] ? [what] : choicesFor(target, g);
  const kind = el('select', { 'data-act': 'kind' }, ...choices.map((k) => el('option', { value: k }, kinds[k].name)));
  const to = el('select', null, ...targets(g));
  const lasts = el('input', { list: 'durations', placeholder: 'until it is ended', autocomplete: 'off', spellcheck: 'false', pattern: '([0-9.]+(h|m|s))+' });
  const reason = el('input', { maxlength: 500, autocomplete: 'off', placeholder: 'shown to everybody' });
  const hard = el('input', { type: 'checkbox' });
  const force = el('input', { type: 'checkbox' });
  const does = el('p', { class: 'does', 'aria-live': 'polite' });
  const rest = el('div', null);
  const refusal = el('div', { class: 'refusal', role: 'alert' });
  const button = el('button', { type: 'submit', class: 'do' });
  const meant = () => target || JSON.parse(to.value || '{}');
  let refused = 0;
  const arrange = () => {
    const k = kinds[kind.value];
    const hardly = k.hard && hard.checked ? ' Hard: nobody is elected, not even when the leader dies.' : '';
    put(does, k.does(inWords(meant()) || 'nobody', g) + hardly);
    put(button, k.name);
    draw(rest, [kind.value, refused], () => [
      k.lasts ? field('For how long', lasts, 'as in 30m, 2h, 1h30m') : null,
      k.hard ? el('label', { class: 'check' }, hard, 'hard: elect nobody at all') : null,
      field('Why', reason),
      k.force && refused === 409 ? el('label', { class: 'check' }, force, 'submit it all the same (force)') : null,
    ]);
  };
  const give = async () => {
    const k = kinds[kind.value];
    const body = { ...(['pause', 'resume', 'reelect', 'step-down'].includes(kind.value) ? {} : meant()) };
    if (k.lasts && lasts.value.trim()) body.for = lasts.value.trim();
    if (reason.value.trim()) body.reason = reason.value.trim();
    if (k.hard && hard.checked) body.hard = true;
    if (k.force && refused === 409 && force.checked) body.force = true;
    button.disabled = true;
    const { code, text } = await post(kind.value, body);
    button.disabled = false;
    if (code === 200) {
      box.close();
      notice(text);
      refresh();
      return;
    }
    refused = code;
    draw(refusal, [code, text, Date.now()], () => [el('p', null, code ? `Refused (${code}): ${text}` : text), [401, 403].includes(code) ? tokenButton(box) : null]);
    arrange();
  };
  for (const e of [kind, to, hard]) e.addEventListener('change', arrange);
  const box = dialog(choices.length > 1 ? `Request for ${inWords(target)}` : kinds[what].name, give,
    choices.length > 1 ? field('What', kind) : null,
    what === 'move' && !target ? field('Where to', to) : null,
    does, rest, el('datalist', { id: 'durations' }, ...['15m', '1h', '2h', '8h', '24h'].map((value) => el('option', { value }))),
    who.can_operate ? null : el('p', { class: 'note' }, `This page may not submit requests: ${who.why || 'it has no token'}. `, tokenButton()),
    refusal, el('p', { class: 'actions' }, cancel(), button));
  arrange();
}

const tokenButton = (box) => el('button', { type: 'button', onclick: (e) => { (box || e.target.closest('dialog')).close(); tokenDialog(); } }, 'Use a token…');

// choicesFor are the requests that make sense for a node or site as it is.
function choicesFor(target, g) {
  const held = (g.requests || []).some((o) => o.target === inWords(target) && ['cordon', 'drain', 'step-down'].includes(o.kind));
  const struck = (g.exclusions || []).some((x) => x.node === target.node && !x.served);
  const leads = target.node ? target.node === g.leader : target.site === g.site;
  return [...(struck ? ['clear-strikes'] : []), ...(held ? ['uncordon'] : []), ...(leads ? [] : ['move']), 'drain', 'cordon'];
}

// targets are where leadership may be moved: the sites, then the nodes, without the leader.
function targets(g) {
  const option = (target) => el('option', { value: JSON.stringify(target) }, inWords(target));
  const sites = [...new Set(g.members.map((m) => m.site))].filter((s) => s && s !== g.site);
  const nodes = g.members.filter((m) => m.node !== g.leader);
  return [
    el('optgroup', { label: 'Nodes' }, ...nodes.map((m) => option({ node: m.node }))),
    el('optgroup', { label: 'The best of a site' }, ...sites.map((site) => option({ site }))),
  ].filter((group) => group.children.length);
}

// post submits a request. code is 0 where there is no answer: then it may have been accepted or not.
async function post(kind, body) {
  try {
    const response = await fetch(`v1/${kind}`, {
      method: 'POST', cache: 'no-store', headers: { 'Content-Type': 'application/json', ...credentials() }, body: JSON.stringify(body), signal: AbortSignal.timeout(answerLimit),
    });
    const answer = await response.json();
    return { code: response.status, text: response.ok ? [answer.messages].flat().join('; ') : answer.error || response.statusText };
  } catch {
    return { code: 0, text: 'There was no answer. It is not known whether the request was accepted: see “Requests and exclusions”.' };
  }
}

function notice(text) {
  const box = byID('notice');
  box.hidden = false;
  draw(box, [text, Date.now()], () => [
    el('span', { class: 'muted' }, `${clockTime(Date.now())} requested: `), text, ' ',
    el('button', { type: 'button', onclick: () => { box.hidden = true; } }, 'OK'),
  ]);
}
