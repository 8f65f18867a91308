// The page's data, and whether it is up to date. An event only reports that something has changed; the page then requests the
// status. It also polls every few seconds, because only the elector and the leader get events about leadership.
import { daemonTime, updateClockSkew, parseDuration, timestamp, elapsed } from './clock.js';

const heartbeatTimeout = 30000; // ms without an event or heartbeat after which the connection counts as lost
const maxResponseAge = 15000; // ms; the maximum age of the last response about the group
const requestTimeout = 5000; // ms
const refreshInterval = 500; // ms; the minimum between two requests about the group
const maxReconnectDelay = 15000; // ms

// api.group is the path of the group, or the slot, in the HTTP API; api.whole is that of the group with all its slots, and api.name
// its name.
export const api = { group: '', whole: '', name: '' };

// model is the data that the page shows.
export const model = {
  status: null, // the daemon's own view
  group: null, // the last group that was received
  groupError: '',
  removed: '', // why the daemon does not have the group
  terms: null,
  explanation: null,
  explainError: '',
  lease: null, // this daemon's lease, if it leads: {term, holds, reason, left, requestedAt}
  failsafeSince: null, // since when this daemon leads without ZooKeeper, in failsafe mode; null if it does not
  leaderlessSince: null, // when this page saw that there is no leader: {at, before}; before: that was already so at the first response
  stale: { since: 0, why: '' }, // why the page is not live; '' while it is
  retryAt: 0,
};

let onModelChange = () => {};
let stream = null;
let connected = false;
let attempts = 0;
let retryTimer = 0;
let lastEvent = null; // timestamp of the last event
let lastResponse = null; // timestamp of the last response about the group
let lastLive = 0; // when the page was last live, by the wall clock

// start connects and starts polling the group of a name. onChange is called after each change of the model.
export function start(name, onChange) {
  api.group = `v1/groups/${encodeURIComponent(name)}/`;
  api.name = name.split('/')[0];
  api.whole = `v1/groups/${encodeURIComponent(api.name)}/`;
  onModelChange = onChange;
  connect();
  const poll = () => {
    if (connected) refresh();
    setTimeout(poll, pollInterval());
  };
  setTimeout(poll, pollInterval());
  const lease = async () => {
    await readLease();
    setTimeout(lease, 1000);
  };
  lease();
  setInterval(checkLive, 1000);
  document.addEventListener('visibilitychange', () => {
    if (!document.hidden) refresh();
  });
  // Browsers keep a page that the user leaves, and its connection, for a while. They open only a few to one address.
  addEventListener('pagehide', () => {
    stream.close();
    connected = false;
  });
  addEventListener('pageshow', (e) => {
    if (e.persisted) connect();
  });
}

// pollInterval returns the time between two polls in ms. It is longer for large groups, which cost more to read, and in hidden
// tabs.
function pollInterval() {
  if (document.hidden) return 10000;
  const members = model.group ? model.group.members.length : 0;
  return members > 100 ? 8000 : members > 10 ? 3000 : 1000; // the lease of a leader lasts a few seconds only
}

// connect opens the event stream, and closes an earlier one. EventSource's own reconnects would stop if the daemon refuses one.
export function connect() {
  clearTimeout(retryTimer);
  if (stream) stream.close();
  stream = new EventSource(`${api.group}events`);
  lastEvent = timestamp();
  stream.onopen = () => {
    connected = true;
    model.retryAt = 0;
    noteEvent();
    refresh();
  };
  stream.onerror = () => {
    reconnectLater();
    readGroup().catch(() => {}); // the stream does not report why
  };
  stream.addEventListener('heartbeat', () => {
    noteEvent();
    if (document.hidden) refresh(); // browsers throttle the timers of hidden tabs
  });
  for (const kind of ['daemon', 'state', 'leadership']) {
    stream.addEventListener(kind, () => {
      attempts = 0;
      noteEvent();
      refresh();
    });
  }
}

function noteEvent() {
  lastEvent = timestamp();
}

function reconnectLater() {
  stream.close();
  connected = false;
  const delay = Math.min(maxReconnectDelay, 500 * 2 ** attempts++) * (0.75 + Math.random() / 2);
  model.retryAt = Date.now() + delay;
  clearTimeout(retryTimer);
  retryTimer = setTimeout(connect, delay);
  checkLive();
}

// checkLive determines whether the model is up to date. In doubt, it is not.
function checkLive() {
  if (connected && elapsed(lastEvent) > heartbeatTimeout) return reconnectLater();
  const why = staleReason();
  if (why === '') {
    lastLive = Date.now();
    model.stale = { since: 0, why };
  } else if (model.stale.why !== why) {
    model.stale = { since: model.stale.since || lastLive || Date.now(), why };
  }
  onModelChange();
}

function staleReason() {
  if (model.removed) return model.removed;
  if (!connected) return lastResponse || attempts > 0 ? 'no connection to the daemon' : 'connecting';
  if (!lastResponse) return 'the daemon has not answered yet';
  if (model.status.state === 'stuck') return `the daemon is stuck: ${model.groupError}`;
  if (model.groupError) return `the daemon cannot read the group: ${model.groupError}`;
  if (elapsed(lastResponse) > maxResponseAge) return 'the daemon does not respond';
  return '';
}

// fetchJSON returns the status code and body of a response. It throws if there is no response.
export async function fetchJSON(path) {
  const response = await fetch(path, { cache: 'no-store', signal: AbortSignal.timeout(requestTimeout) });
  updateClockSkew(response);
  return { code: response.status, body: await response.json() };
}

let refreshing = false;
let refreshAgain = false;

// refresh requests the group. At most one request is active; if refresh is called in the meantime, another one follows.
export async function refresh() {
  refreshAgain = true;
  if (refreshing) return;
  refreshing = true;
  while (refreshAgain) {
    refreshAgain = false;
    await readGroup().catch(() => {}); // checkLive notices that there was no response
    checkLive();
    await new Promise((next) => setTimeout(next, refreshInterval));
  }
  refreshing = false;
}

let groupKey = ''; // the part of the group that the history and the explanation depend on
let groupKeyTime = null;

async function readGroup() {
  const { code, body } = await fetchJSON(`${api.group}status`);
  model.removed = code === 404 ? body.error : '';
  if (!body.phase) return; // refused: too many concurrent requests
  lastResponse = timestamp();
  model.status = body;
  model.groupError = body.group_error || '';
  const f = body.failsafe || {};
  model.failsafeSince = f.active ? model.failsafeSince || Math.round(daemonTime() - (parseDuration(f.active_for) || 0)) : null;
  if (!body.group_status) return;
  setGroup(body.group_status);
  const now = JSON.stringify(body.group_status, (name, value) => (['remaining', 'latency_ms', 'score'].includes(name) ? undefined : value));
  if (now === groupKey && elapsed(groupKeyTime) < 30000) return;
  checkLive();
  const [history, explain] = await Promise.all([fetchJSON(`${api.group}history?n=30`), fetchJSON(`${api.group}explain`)]);
  if (history.body.terms) model.terms = history.body.terms;
  if (explain.body.explanation) model.explanation = explain.body.explanation;
  model.explainError = explain.body.error || '';
  // The elector writes the history after the decision, so request it again until it has the term.
  const newest = (model.terms || []).at(-1);
  if (history.code === 200 && (!body.group_status.term || (newest && newest.term >= body.group_status.term && newest.outcome))) [groupKey, groupKeyTime] = [now, timestamp()];
}

// setGroup stores the group, and records since when there is no leader.
function setGroup(group) {
  const known = Date.parse(group.leaderless_since || '');
  if (group.leader) model.leaderlessSince = null;
  else if (!Number.isNaN(known)) model.leaderlessSince = { at: known, before: false };
  else model.leaderlessSince ||= { at: Date.now(), before: !model.group };
  model.group = group;
}

// readLease requests the remaining time of the lease, which only its holder knows. The time counts from the start of the request,
// so that the page never shows more than there is.
async function readLease() {
  const leads = model.status && model.status.phase === 'leading' && model.group && model.group.leader === model.status.node;
  if (!leads || !connected) {
    model.lease = null;
    return;
  }
  const requestedAt = timestamp();
  try {
    const { body } = await fetchJSON(`${api.group}leader`);
    model.lease = { term: body.term, holds: body.answer === true, reason: body.reason || '', left: parseDuration(body.lease_remaining) || 0, requestedAt };
  } catch {
    // The time from the last response runs out by itself.
  }
  onModelChange();
}
