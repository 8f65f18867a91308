// Submitting operator requests: a dialog explains a request before it is submitted, and shows the daemon's response. The daemon
// decides who may submit requests; the page submits them in any case, and shows a refusal.
import { byID, render, el, setText } from './dom.js';
import { formatTime } from './clock.js';
import { model, refresh } from './source.js';

const storageKey = 'zkelectd token'; // in sessionStorage: only for this tab, and kept when it is reloaded
const responseTimeout = 15000;

// kinds are the kinds of requests: the button's text, the effect, and the fields that they have.
const kinds = {
  'move': { name: 'Move leadership', effect: (t, g) => `${g.leader ? `Leadership moves from ${g.leader} to ${t}` : `${t} leads`}, and stays there until the request ends.`, hasDuration: true, canForce: true },
  'step-down': { name: 'Step down', effect: (t, g) => `${g.leader || 'The leader'} hands over to the next best member, and is not elected again until the request ends (10 min by default).`, hasDuration: true },
  'pause': { name: 'Pause', effect: () => 'Policy no longer replaces a healthy leader. A leader that fails is still replaced.', hasDuration: true, canBeHard: true },
  'resume': { name: 'Resume', effect: () => 'The pause ends. Policy decides again, and may move leadership at once.' },
  'reelect': { name: 'Reelect by policy', effect: () => 'The move ends. Policy decides again, and may move leadership at once.' },
  'cordon': { name: 'Cordon', effect: (t) => `${t} will not be elected. If it leads, it keeps leading.`, hasDuration: true },
  'drain': { name: 'Drain', effect: (t) => `${t} will not be elected. If it leads, leadership moves away.`, hasDuration: true, canForce: true },
  'uncordon': { name: 'Uncordon', effect: (t) => `${t} may be elected again, and may lead at once.` },
  'clear-strikes': { name: 'Clear strikes', effect: (t) => `The strikes of ${t} are cleared. It may be elected again at once.` },
};

let token = sessionStorage.getItem(storageKey) || '';
let identity = { can_operate: false, why: '' };
let identifiedFor = null; // the incarnation of the daemon that whoami was last sent to

const credentials = () => (token ? { Authorization: `Bearer ${token}` } : {});
const targetText = (target) => (target.site ? `site ${target.site}` : target.node);

// updateIdentity updates the button that shows who submits the requests. It asks a daemon again only after its restart.
export async function updateIdentity() {
  const daemon = model.status && model.status.incarnation;
  if (!daemon || daemon === identifiedFor) return;
  identifiedFor = daemon;
  identity = await whoami(token).catch(() => ({ can_operate: false, why: 'the daemon has not answered' }));
  showIdentity();
}

function showIdentity() {
  setText(byID('operator'), identity.can_operate ? `Operator: ${identity.name}` : 'Use a token…');
}

async function whoami(secret) {
  const response = await fetch('v1/whoami', { cache: 'no-store', headers: secret ? { Authorization: `Bearer ${secret}` } : {}, signal: AbortSignal.timeout(responseTimeout) });
  return response.json();
}

// openDialog shows a dialog with a form, and removes it when it is closed.
function openDialog(title, submit, ...content) {
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

const labeled = (name, control, hint) => el('label', null, el('span', null, name), control, hint ? el('small', null, hint) : null);
const cancelButton = () => el('button', { type: 'button', onclick: (e) => e.target.closest('dialog').close() }, 'Cancel');

// tokenDialog asks for a token, or forgets the current one.
export function tokenDialog() {
  const input = el('input', { type: 'password', autocomplete: 'off', spellcheck: 'false', required: true });
  const refusal = el('p', { class: 'refusal', role: 'alert' });
  const useToken = async () => {
    const secret = input.value.trim();
    const answer = await whoami(secret).catch((e) => ({ why: e instanceof TypeError ? 'this is not a valid token, or there is no connection' : 'the daemon does not respond' }));
    if (!answer.can_operate) return setText(refusal, `Refused: ${answer.why || answer.error || 'the daemon accepts no tokens'}`);
    token = secret;
    sessionStorage.setItem(storageKey, token);
    identity = answer;
    showIdentity();
    box.close();
  };
  const forget = () => {
    token = '';
    sessionStorage.removeItem(storageKey);
    identifiedFor = null;
    updateIdentity();
    box.close();
  };
  const box = openDialog('Token', useToken,
    el('p', null, identity.can_operate ? `Requests are submitted as ${identity.name} (${identity.how}).` : `This page may not submit requests: ${identity.why || 'it has no token'}.`),
    el('p', { class: 'muted' }, 'The administrator of the daemon sets the tokens in http.token_file. This tab keeps the token until it is closed.'),
    labeled('Token', input), refusal,
    el('p', { class: 'actions' }, token ? el('button', { type: 'button', onclick: forget }, 'Forget the token') : null, cancelButton(), el('button', { type: 'submit', class: 'primary' }, 'Use token')));
}

// requestDialog asks for the details of a request and submits it. what is a kind; or node or site, and then the user chooses the
// kind.
export function requestDialog(what, target) {
  const g = model.group;
  const offered = kinds[what] ? [what] : kindsFor(target, g);
  const kind = el('select', { 'data-act': 'kind' }, ...offered.map((k) => el('option', { value: k }, kinds[k].name)));
  const destination = el('select', null, ...targetOptions(g));
  const duration = el('input', { list: 'durations', placeholder: 'no end', autocomplete: 'off', spellcheck: 'false', pattern: '([0-9.]+(h|m|s))+' });
  const reason = el('input', { maxlength: 500, autocomplete: 'off', placeholder: 'visible to everyone' });
  const hard = el('input', { type: 'checkbox' });
  const force = el('input', { type: 'checkbox' });
  const effect = el('p', { class: 'effect', 'aria-live': 'polite' });
  const fields = el('div', null);
  const refusal = el('div', { class: 'refusal', role: 'alert' });
  const button = el('button', { type: 'submit', class: 'primary' });
  const chosenTarget = () => target || JSON.parse(destination.value || '{}');
  let refusedCode = 0;
  const update = () => {
    const k = kinds[kind.value];
    const hardText = k.canBeHard && hard.checked ? ' Hard: no member is elected, not even to replace a leader that fails.' : '';
    setText(effect, k.effect(targetText(chosenTarget()) || 'no member', g) + hardText);
    setText(button, k.name);
    render(fields, [kind.value, refusedCode], () => [
      k.hasDuration ? labeled('For how long', duration, 'for example 30m, 2h, 1h30m') : null,
      k.canBeHard ? el('label', { class: 'check' }, hard, 'hard: elect no member at all') : null,
      labeled('Why', reason),
      k.canForce && refusedCode === 409 ? el('label', { class: 'check' }, force, 'submit it anyway (force)') : null,
    ]);
  };
  const submitRequest = async () => {
    const k = kinds[kind.value];
    const body = { ...(['pause', 'resume', 'reelect', 'step-down'].includes(kind.value) ? {} : chosenTarget()) };
    if (k.hasDuration && duration.value.trim()) body.for = duration.value.trim();
    if (reason.value.trim()) body.reason = reason.value.trim();
    if (k.canBeHard && hard.checked) body.hard = true;
    if (k.canForce && refusedCode === 409 && force.checked) body.force = true;
    button.disabled = true;
    const { code, text } = await postRequest(kind.value, body);
    button.disabled = false;
    if (code === 200) {
      box.close();
      showNotice(text);
      refresh();
      return;
    }
    refusedCode = code;
    render(refusal, [code, text, Date.now()], () => [el('p', null, code ? `Refused (${code}): ${text}` : text), [401, 403].includes(code) ? tokenButton(box) : null]);
    update();
  };
  for (const e of [kind, destination, hard]) e.addEventListener('change', update);
  const box = openDialog(offered.length > 1 ? `Request for ${targetText(target)}` : kinds[what].name, submitRequest,
    offered.length > 1 ? labeled('What', kind) : null,
    what === 'move' && !target ? labeled('Where to', destination) : null,
    effect, fields, el('datalist', { id: 'durations' }, ...['15m', '1h', '2h', '8h', '24h'].map((value) => el('option', { value }))),
    identity.can_operate ? null : el('p', { class: 'note' }, `This page may not submit requests: ${identity.why || 'it has no token'}. `, tokenButton()),
    refusal, el('p', { class: 'actions' }, cancelButton(), button));
  update();
}

const tokenButton = (box) => el('button', { type: 'button', onclick: (e) => { (box || e.target.closest('dialog')).close(); tokenDialog(); } }, 'Use a token…');

// kindsFor returns the kinds of requests that make sense for a node or site in its current state.
function kindsFor(target, g) {
  const cordoned = (g.requests || []).some((r) => r.target === targetText(target) && ['cordon', 'drain', 'step-down'].includes(r.kind));
  const hasStrikes = (g.exclusions || []).some((x) => x.node === target.node && !x.expired);
  const leads = target.node ? target.node === g.leader : target.site === g.site;
  return [...(hasStrikes ? ['clear-strikes'] : []), ...(cordoned ? ['uncordon'] : []), ...(leads ? [] : ['move']), 'drain', 'cordon'];
}

// targetOptions returns the options for a move: the nodes except the leader, then the other sites.
function targetOptions(g) {
  const option = (target) => el('option', { value: JSON.stringify(target) }, targetText(target));
  const sites = [...new Set(g.members.map((m) => m.site))].filter((s) => s && s !== g.site);
  const nodes = g.members.filter((m) => m.node !== g.leader);
  return [
    el('optgroup', { label: 'Nodes' }, ...nodes.map((m) => option({ node: m.node }))),
    el('optgroup', { label: 'Best member of a site' }, ...sites.map((site) => option({ site }))),
  ].filter((group) => group.children.length);
}

// postRequest submits a request. code is 0 if there is no response: then the request may or may not have been accepted.
async function postRequest(kind, body) {
  try {
    const response = await fetch(`v1/${kind}`, {
      method: 'POST', cache: 'no-store', headers: { 'Content-Type': 'application/json', ...credentials() }, body: JSON.stringify(body), signal: AbortSignal.timeout(responseTimeout),
    });
    const answer = await response.json();
    return { code: response.status, text: response.ok ? [answer.messages].flat().join('; ') : answer.error || response.statusText };
  } catch {
    return { code: 0, text: 'There was no response. It is unknown whether the request was accepted: see “Requests and exclusions”.' };
  }
}

function showNotice(text) {
  const box = byID('notice');
  box.hidden = false;
  render(box, [text, Date.now()], () => [
    el('span', { class: 'muted' }, `${formatTime(Date.now())} requested: `), text, ' ',
    el('button', { type: 'button', onclick: () => { box.hidden = true; } }, 'OK'),
  ]);
}
