// Time: how long ago something was, and what the daemon's clock shows.

let skew = 0; // of the daemon's clock against this host's, in milliseconds

// heardDate takes the daemon's clock from an answer: hosts' clocks differ, and requests end by its.
export function heardDate(response) {
  const date = Date.parse(response.headers.get('Date'));
  if (!Number.isNaN(date) && Math.abs(date - Date.now() - skew) > 2000) skew = date - Date.now();
}

export const daemonTime = () => Date.now() + skew;

// A moment is on two clocks: the one stands still while the host sleeps, the other may be set back. What passed since is the
// longer of the two, so that nothing old looks new.
export const moment = () => ({ steady: performance.now(), wall: Date.now() });
export const passed = (m) => Math.max(performance.now() - m.steady, Date.now() - m.wall);

// words are a duration in milliseconds, in two units.
export function words(ms) {
  const s = Math.max(0, Math.floor(ms / 1000));
  const two = (n) => String(n).padStart(2, '0');
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${two(s % 60)} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${two(Math.floor(s / 60) % 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor(s / 3600) % 24} h`;
}

// short is a duration as Go writes it, in as many figures as matter.
export function short(text) {
  const ms = milliseconds(text);
  if (Number.isNaN(ms)) return text;
  if (ms < 1000) return `${ms < 10 ? ms.toFixed(1) : Math.round(ms)} ms`;
  return ms < 60000 ? `${(ms / 1000).toFixed(1)} s` : words(ms);
}

// clockTime is a time of day, with the date if it is not today.
export function clockTime(ms) {
  const d = new Date(ms);
  if (Number.isNaN(d.getTime())) return 'an unknown time';
  const two = (n) => String(n).padStart(2, '0');
  const time = `${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}`;
  return d.toDateString() === new Date().toDateString() ? time : `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())} ${time}`;
}

// milliseconds reads a duration as Go writes it, as in 1m30s; NaN if it is none.
export function milliseconds(text) {
  const unit = { h: 3600000, m: 60000, s: 1000, ms: 1, 'µs': 1e-3, us: 1e-3, ns: 1e-6 };
  const parts = [...String(text).matchAll(/([0-9.]+)(h|ms|m|s|µs|us|ns)/g)];
  return parts.length ? parts.reduce((sum, [, n, u]) => sum + Number(n) * unit[u], 0) : NaN;
}
