// What the page knows, and how far it can be trusted. The stream of events says that something has changed; what, is then
// asked for. Who leads is also asked for every few seconds, because only the elector and who holds leadership hear of it.
import { heardDate, milliseconds, moment, passed } from './clock.js';

const beatLimit = 30000; // no event and no beat for so long: the daemon, or the way to it, is gone
const answerLimit = 15000; // as old may the last answer about the group be
const requestLimit = 5000;
const between = 500; // between two questions about the group
const slowest = 15000; // between two attempts to connect

// known is all that is shown.
export const known = {
  status: null, // the daemon's own view
  group: null, // the last that was told
  groupError: '',
  terms: null,
  explanation: null,
  explainError: '',
  lease: null, // of this daemon, if it leads: {term, holds, why, left, asked}
  unledSince: null, // when this page saw that nobody leads; {at, before} where before tells that it was so already
  stale: { since: 0, why: '' }, // why is '' while the page is live
  retryAt: 0,
};

let changed = () => {};
let stream = null;
let open = false;
let attempts = 0;
let retry = 0;
let heard = null; // the last event
let told = null; // the last answer about the group
let good = 0; // wall clock, when the page was last live

// start begins to follow; onChange is called after each change.
export function start(onChange) {
  changed = onChange;
  connect();
  const poll = () => {
    if (open) refresh();
    setTimeout(poll, pollEvery());
  };
  setTimeout(poll, pollEvery());
  const lease = async () => {
    await readLease();
    setTimeout(lease, 1000);
  };
  lease();
  setInterval(judge, 1000);
  document.addEventListener('visibilitychange', () => {
    if (!document.hidden) refresh();
  });
}

// pollEvery is longer for large groups, which cost more to read, and where nobody looks.
function pollEvery() {
  if (document.hidden) return 10000;
  return known.group && known.group.members.length > 100 ? 8000 : 3000;
}

// connect opens the stream, and again whenever it is cut. The browser's own way to do that gives up at a daemon's refusal.
export function connect() {
  clearTimeout(retry);
  if (stream) stream.close();
  stream = new EventSource('v1/events');
  heard = moment();
  stream.onopen = () => {
    open = true;
    known.retryAt = 0;
    hear();
    refresh();
  };
  stream.onerror = cut;
  stream.addEventListener('beat', () => {
    hear();
    if (document.hidden) refresh(); // where nobody looks, browsers hold timers back
  });
  for (const kind of ['daemon', 'state', 'elected', 'leadership']) {
    stream.addEventListener(kind, () => {
      attempts = 0;
      hear();
      refresh();
    });
  }
}

function hear() {
  heard = moment();
}

function cut() {
  stream.close();
  open = false;
  const delay = Math.min(slowest, 500 * 2 ** attempts++) * (0.75 + Math.random() / 2);
  known.retryAt = Date.now() + delay;
  clearTimeout(retry);
  retry = setTimeout(connect, delay);
  judge();
}

// judge tells whether what is shown may be believed. It fails closed.
function judge() {
  if (open && passed(heard) > beatLimit) return cut();
  const why = doubt();
  if (why === '') {
    good = Date.now();
    known.stale = { since: 0, why };
  } else if (known.stale.why !== why) {
    known.stale = { since: known.stale.since || good || Date.now(), why };
  }
  changed();
}

function doubt() {
  if (!open) return told || attempts > 0 ? 'there is no connection to the daemon' : 'connecting';
  if (!told) return 'the daemon has not answered yet';
  if (known.status.state === 'stuck') return `the daemon is stuck: ${known.groupError}`;
  if (known.groupError) return `the daemon cannot read the group: ${known.groupError}`;
  if (passed(told) > answerLimit) return 'the daemon does not answer';
  return '';
}

// ask returns an answer in JSON, whatever its status; it throws if there is none.
async function ask(path) {
  const response = await fetch(path, { cache: 'no-store', signal: AbortSignal.timeout(requestLimit) });
  heardDate(response);
  return { code: response.status, body: await response.json() };
}

let busy = false;
let again = false;

// refresh asks for the group; at most one question is under way, and one more follows if something happens meanwhile.
export async function refresh() {
  again = true;
  if (busy) return;
  busy = true;
  while (again) {
    again = false;
    await read().catch(() => {}); // judge sees that nothing was told
    judge();
    await new Promise((next) => setTimeout(next, between));
  }
  busy = false;
}

let shape = ''; // of the group: what the history and the explanation depend on
let shapedAt = null;

async function read() {
  const { body } = await ask('v1/status');
  if (!body.phase) return; // a refusal: too many ask at once
  told = moment();
  known.status = body;
  known.groupError = body.group_error || '';
  if (!body.group) return;
  follow(body.group);
  const now = JSON.stringify(body.group, (name, value) => (['remaining', 'latency_ms', 'score'].includes(name) ? undefined : value));
  if (now === shape && passed(shapedAt) < 30000) return;
  judge();
  const [history, explain] = await Promise.all([ask('v1/history?n=30'), ask('v1/explain')]);
  if (history.body.terms) known.terms = history.body.terms;
  if (explain.body.explanation) known.explanation = explain.body.explanation;
  known.explainError = explain.body.error || '';
  // The elector writes the history after the decision: until it has the term, it is asked for again.
  const newest = (known.terms || []).at(-1);
  if (history.code === 200 && (!body.group.term || (newest && newest.term >= body.group.term && newest.outcome))) [shape, shapedAt] = [now, moment()];
}

// follow takes a group over, and notes since when nobody leads.
function follow(group) {
  if (group.leader) known.unledSince = null;
  else known.unledSince ||= { at: Date.now(), before: !known.group };
  known.group = group;
}

// readLease asks for what is left of the lease, which only its holder knows. It counts from when it was asked for: so the page
// never shows more than there is.
async function readLease() {
  const leads = known.status && known.status.phase === 'leading' && known.group && known.group.leader === known.status.node;
  if (!leads || !open) {
    known.lease = null;
    return;
  }
  const asked = moment();
  try {
    const { body } = await ask('leader');
    known.lease = { term: body.term, holds: body.answer === true, why: body.why || '', left: milliseconds(body.lease_remaining) || 0, asked };
  } catch {
    // What was told before runs out by itself.
  }
  changed();
}
