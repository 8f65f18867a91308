// Submitting operator requests: a dialog explains a request before it is submitted, shows the daemon's forecast, and then its response.
// The daemon decides who may submit requests. To others the page shows the forecast only.
import { byID, render, el, setText } from './dom.js';
import { formatTime } from './clock.js';
import { rankOf } from './parts.js';
import { api, fetchJSON, model, refresh } from './source.js';

const storageKey = 'zkelectd token'; // in sessionStorage: only for this tab, and kept when it is reloaded
const responseTimeout = 15000;

// kinds are the kinds of requests: the button's text, the effect, and the fields that they have. Those with ofSlot concern one leader, the others all slots of a group.
const kinds = {
  'move': { name: 'Move leadership', effect: (t, g) => `${g.leader ? `Leadership moves from ${g.leader} to ${t}` : `${t} leads`}, and stays there until the request ends.`, hasDuration: true, canForce: true, ofSlot: true },
  'pause': { name: 'Pause', effect: () => 'Policy no longer replaces a healthy leader. A leader that fails is still replaced.', hasDuration: true, canBeHard: true },
  'resume': { name: 'Resume', effect: () => 'The pause ends. Policy decides again, and may move leadership at once.' },
  'reelect': { name: 'Reelect by policy', effect: () => 'The move ends. Policy decides again, and may move leadership at once.', ofSlot: true },
  'cordon': { name: 'Cordon', effect: (t) => `${t} will not be elected. If it leads, it keeps leading.`, hasDuration: true },
  'drain': { name: 'Drain', effect: (t) => `${t} will not be elected. If it leads, leadership moves away.`, hasDuration: true, canForce: true },
  'uncordon': { name: 'Uncordon', effect: (t) => `${t} may be elected again, and may lead at once.` },
  'approve': { name: 'Approve', effect: (t) => `A person must decide whether ${t} leads. It takes over once that is approved.`, canReject: true, ofSlot: true },
  'forget': { name: 'Forget', effect: (t) => `${t} is no longer shown, or expected. If it comes back, it is a member again.` },
  'clear-strikes': { name: 'Clear strikes', effect: (t) => `The strikes of ${t} are cleared. It may be elected again at once.` },
};

let token = sessionStorage.getItem(storageKey) || '';
let identity = { can_operate: false, reason: '' };
let identifiedFor = null; // the incarnation of the daemon that whoami was last sent to

const credentials = () => (token ? { Authorization: `Bearer ${token}` } : {});
const targetText = (target) => (target.site ? `site ${target.site}` : target.node);

// updateIdentity updates the button that shows who submits the requests. It asks a daemon again only after its restart.
export async function updateIdentity() {
  const daemon = model.status && model.status.incarnation;
  if (!daemon || daemon === identifiedFor) return;
  identifiedFor = daemon;
  identity = await whoami(token).catch(() => ({ can_operate: false, reason: 'the daemon has not answered' }));
  showIdentity();
}

// mayOperate reports whether requests for this group are permitted.
const mayOperate = () => identity.can_operate && (!identity.groups || identity.groups.includes(api.name));

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
  const opener = document.activeElement;
  box.addEventListener('close', () => {
    box.remove();
    if (!opener.isConnected && opener.dataset.act) [...document.querySelectorAll('[data-act]')].find((e) => e.dataset.act === opener.dataset.act)?.focus(); // it was replaced
  });
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
    const answer = await whoami(secret).catch((e) => ({ reason: e instanceof TypeError ? 'this is not a valid token, or there is no connection' : 'the daemon does not respond' }));
    if (!answer.can_operate) return setText(refusal, `Refused: ${answer.reason || answer.error || 'the daemon accepts no tokens'}`);
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
    el('p', null, identity.can_operate ? `Requests are submitted as ${identity.name} (${identity.how}).` : `This page may not submit requests: ${identity.reason || 'it has no token'}.`),
    el('p', { class: 'muted' }, 'The administrator of the daemon sets the tokens in http.token_file. This tab keeps the token until it is closed.'),
    labeled('Token', input), refusal,
    el('p', { class: 'actions' }, token ? el('button', { type: 'button', onclick: forget }, 'Forget the token') : null, cancelButton(), el('button', { type: 'submit', class: 'primary' }, 'Use token')));
}

// requestDialog asks for the details of a request and submits it. what is a kind; or node or site, and then the user chooses the
// kind.
export function requestDialog(what, target) {
  const offered = kinds[what] ? [what] : kindsFor(target, model.group);
  const form = { target, refused: false, ...requestFields(offered) };
  const update = () => {
    updateFields(form);
    showForecast(form);
  };
  for (const e of [form.kind, form.destination, form.hard, form.force, form.reject]) e.addEventListener('change', update);
  for (const e of [form.duration, form.reason]) e.addEventListener('change', () => showForecast(form));
  const several = offered.length > 1;
  form.box = openDialog(several ? `Request for ${targetText(target)}` : kinds[what].name, () => submitRequest(form, update),
    several ? labeled('What', form.kind) : null,
    what === 'move' && !target ? labeled('Where to', form.destination) : null,
    form.effect, el('section', { 'class': 'forecast', 'aria-label': 'Forecast', 'aria-live': 'polite' }, form.forecast), form.fields,
    durations(),
    mayOperate() ? null : el('p', { class: 'note' }, `This page may not submit requests: ${identity.reason || (identity.can_operate ? 'its token is for other groups' : 'it has no token')}. `, tokenButton()),
    form.refusal, el('p', { class: 'actions' }, cancelButton(), form.button), form.forcing);
  update();
}

// hostDialog asks for a request for a host in all groups of the daemon, and submits it. leads is how many of them it leads.
export async function hostDialog(node, leads) {
  identity = await whoami(token).catch(() => ({ can_operate: false, reason: 'the daemon has not answered' }));
  showIdentity();
  const form = requestFields(['drain', 'cordon', 'uncordon'], true);
  const update = () => {
    const k = kinds[form.kind.value];
    setText(form.effect, `In all groups of this daemon, of which it leads ${leads}: ${k.effect(node)}`);
    setText(form.button, k.name);
    render(form.fields, form.kind.value, () => [k.hasDuration ? durationField(form) : null, reasonField(form)]);
  };
  const submit = async () => {
    if (!identity.can_operate) return;
    form.button.disabled = true;
    const { code, answer } = await post(`v1/groups/${form.kind.value}`, optionalFields(form, { node }));
    form.button.disabled = false;
    const failed = (answer.groups || []).filter((g) => g.error);
    if (code === 200) {
      form.box.close();
      return showNotice(`${kinds[form.kind.value].name} ${node}: ${answer.groups.filter((g) => g.request).length} of ${answer.groups.length} groups`);
    }
    render(form.refusal, [answer, Date.now()], () => [
      el('p', null, failed.length ? `Not accepted in ${failed.length} of ${answer.groups.length} groups:` : answer.error || unknownOutcome),
      failed.length ? el('ul', null, failed.slice(0, 10).map((g) => el('li', null, `${g.group}: ${g.error}`)), failed.length > 10 ? el('li', null, `and ${failed.length - 10} more`) : null) : null,
      [401, 403].includes(code) ? tokenButton(form.box) : null]);
  };
  form.kind.addEventListener('change', update);
  form.box = openDialog(`Request for ${node}`, submit, labeled('What', form.kind), form.effect, form.fields, durations(),
    identity.can_operate ? null : el('p', { class: 'note' }, `This page may not submit requests: ${identity.reason || 'it has no token'}. `, tokenButton()),
    form.refusal, el('p', { class: 'actions' }, cancelButton(), form.button));
  update();
}

const durations = () => el('datalist', { id: 'durations' }, ...['15m', '1h', '2h', '8h', '24h'].map((value) => el('option', { value })));
const durationField = (form) => labeled('For how long', form.duration, 'for example 30m, 2h, 1h30m');
const reasonField = (form) => labeled('Why', form.reason);

// requestFields returns the controls of the dialog; overGroups is set if it is about all groups.
function requestFields(offered, overGroups) {
  return {
    kind: el('select', { 'data-act': 'kind' }, ...offered.map((k) => el('option', { value: k }, kinds[k].name))),
    destination: el('select', { 'data-act': 'destination' }, ...(overGroups ? [] : targetOptions(model.group))),
    duration: el('input', { list: 'durations', placeholder: 'no end', autocomplete: 'off', spellcheck: 'false', pattern: '([0-9.]+(h|m|s))+' }),
    reason: el('input', { maxlength: 500, autocomplete: 'off', placeholder: 'visible to everyone' }),
    hard: el('input', { type: 'checkbox' }),
    force: el('input', { type: 'checkbox' }),
    reject: el('input', { type: 'checkbox' }),
    effect: el('p', { 'class': 'effect', 'aria-live': 'polite' }),
    forecast: el('ul', null),
    fields: el('div', null),
    forcing: el('div', null),
    refusal: el('div', { class: 'refusal', role: 'alert' }),
    button: el('button', { type: 'submit', class: 'primary', disabled: !(overGroups ? identity.can_operate : mayOperate()) }),
  };
}

const chosenTarget = (form) => form.target || JSON.parse(form.destination.value || '{}');

// updateFields shows the effect of the request, and the fields that it has.
function updateFields(form) {
  const k = kinds[form.kind.value];
  const hardText = k.canBeHard && form.hard.checked ? ' Hard: the leader stays, and nobody replaces it, not even if it fails.' : '';
  setText(form.effect, k.effect(targetText(chosenTarget(form)) || 'no member', model.group) + hardText);
  setText(form.button, k.canReject && form.reject.checked ? 'Reject' : k.name);
  render(form.fields, [form.kind.value], () => [
    k.hasDuration ? durationField(form) : null,
    k.canBeHard ? el('label', { class: 'check' }, form.hard, 'hard: elect no member at all') : null,
    k.canReject ? el('label', { class: 'check' }, form.reject, 'reject: do not elect it') : null,
    reasonField(form),
  ]);
  // Below the button: it appears while somebody may be about to press that.
  render(form.forcing, [form.kind.value, form.refused], () => (k.canForce && form.refused ? el('label', { class: 'check' }, form.force, 'submit it anyway (force)') : null));
}

// requestBody returns the fields of the request.
function requestBody(form) {
  const k = kinds[form.kind.value];
  const body = ['pause', 'resume', 'reelect'].includes(form.kind.value) ? {} : { ...chosenTarget(form) };
  optionalFields(form, body);
  if (k.canBeHard && form.hard.checked) body.hard = true;
  if (k.canReject && form.reject.checked) body.reject = true;
  if (k.canForce && form.refused && form.force.checked) body.force = true;
  return body;
}

// optionalFields adds what the user has typed to the fields of a request.
function optionalFields(form, body) {
  if (kinds[form.kind.value].hasDuration && form.duration.value.trim()) body.for = form.duration.value.trim();
  if (form.reason.value.trim()) body.reason = form.reason.value.trim();
  return body;
}

// showForecast shows what the request would do, as the daemon forecasts it. Only the newest question counts.
async function showForecast(form) {
  const asked = { request: form.kind.value, ...requestBody(form) };
  form.asked = asked;
  const { code, body } = await fetchJSON(`${api.group}whatif?${new URLSearchParams(asked)}`).catch(() => ({ code: 0, body: {} }));
  if (form.asked !== asked) return;
  const fault = code !== 200 ? `There is no forecast: ${body.error || 'the daemon does not respond'}` : body.refused ? `It would be refused: ${body.refused}` : '';
  if (code === 200 && body.refused && !form.refused) {
    form.refused = true;
    updateFields(form);
  }
  render(form.forecast, [fault, body.messages], () => (fault ? el('li', { class: 'bad' }, fault) : body.messages.map((line) => el('li', null, line))));
}

async function submitRequest(form, update) {
  if (!mayOperate()) return;
  form.button.disabled = true;
  const { code, text } = await postRequest(form.kind.value, requestBody(form));
  form.button.disabled = false;
  if (code === 200) {
    form.box.close();
    showNotice(text);
    refresh();
    return;
  }
  form.refused ||= code === 409;
  render(form.refusal, [code, text, Date.now()], () => [el('p', null, code ? `Refused (${code}): ${text}` : text), [401, 403].includes(code) ? tokenButton(form.box) : null]);
  update();
}

const tokenButton = (box) => el('button', { type: 'button', onclick: (e) => { (box || e.target.closest('dialog')).close(); tokenDialog(); } }, 'Use a token…');

// kindsFor returns the kinds of requests that make sense for a node or site in its current state.
function kindsFor(target, g) {
  const cordoned = (g.requests || []).some((r) => r.target === targetText(target) && ['cordon', 'drain'].includes(r.kind));
  const hasStrikes = (g.exclusions || []).some((x) => x.node === target.node && !x.expired);
  const leads = target.node ? target.node === g.leader : target.site === g.site;
  return [...(hasStrikes ? ['clear-strikes'] : []), ...(cordoned ? ['uncordon'] : []), ...(leads ? [] : ['move']), 'drain', 'cordon'];
}

// targetOptions returns the options for a move: the nodes except the leader, the best first, then the other sites. The first is the
// default.
function targetOptions(g) {
  const option = (target, note) => el('option', { value: JSON.stringify(target) }, targetText(target) + note);
  const sites = [...new Set(g.members.map((m) => m.site))].filter((s) => s && s !== g.site);
  const place = (m) => (m.eligible === 'yes' && (rankOf(m.node) || {}).rank) || Infinity;
  const nodes = g.members.filter((m) => m.node !== g.leader).sort((a, b) => (place(a) === place(b) ? 0 : place(a) - place(b)));
  return [
    el('optgroup', { label: 'Nodes' }, ...nodes.map((m) => option({ node: m.node }, place(m) === Infinity ? ' (not eligible)' : ''))),
    el('optgroup', { label: 'Best member of a site' }, ...sites.map((site) => option({ site }, ''))),
  ].filter((group) => group.children.length);
}

const unknownOutcome = 'There was no response. It is unknown whether the request was accepted: see “Requests and exclusions”.';

// postRequest submits a request. code is 0 if there is no response: then the request may or may not have been accepted.
async function postRequest(kind, body) {
  const { code, answer } = await post(`${kinds[kind].ofSlot ? api.group : api.whole}${kind}`, body);
  return { code, text: !code ? unknownOutcome : code === 200 ? [answer.messages].flat().join('; ') : answer.error || `status ${code}` };
}

async function post(path, body) {
  try {
    const response = await fetch(path, {
      method: 'POST', cache: 'no-store', headers: { 'Content-Type': 'application/json', ...credentials() }, body: JSON.stringify(body), signal: AbortSignal.timeout(responseTimeout),
    });
    return { code: response.status, answer: await response.json() };
  } catch {
    return { code: 0, answer: {} };
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
