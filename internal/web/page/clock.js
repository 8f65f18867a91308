// Clocks and durations.

let clockSkew = 0; // the daemon's clock minus this host's, in milliseconds

// updateClockSkew reads the daemon's clock from a response. The clocks of hosts differ, and requests end by the daemon's.
export function updateClockSkew(response) {
  const date = Date.parse(response.headers.get('Date'));
  if (!Number.isNaN(date) && Math.abs(date - Date.now() - clockSkew) > 2000) clockSkew = date - Date.now();
}

export const daemonTime = () => Date.now() + clockSkew;

// timestamp returns the time by two clocks: one stops while the host sleeps, the other may be set back. elapsed returns the longer
// of the two durations since then, in milliseconds, so that old information never looks fresh.
export const timestamp = () => ({ steady: performance.now(), wall: Date.now() });
export const elapsed = (m) => Math.max(performance.now() - m.steady, Date.now() - m.wall);

// formatDuration formats milliseconds in at most two units.
export function formatDuration(ms) {
  const s = Math.max(0, Math.floor(ms / 1000));
  const two = (n) => String(n).padStart(2, '0');
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${two(s % 60)} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${two(Math.floor(s / 60) % 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor(s / 3600) % 24} h`;
}

// formatAge formats milliseconds for a time that has passed: in whole minutes, unless it is less than one.
export function formatAge(ms) {
  const s = Math.max(0, Math.floor(ms / 1000));
  const units = (n, unit, rest, small) => `${n} ${unit}${rest ? ` ${rest} ${small}` : ''}`;
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  if (s < 86400) return units(Math.floor(s / 3600), 'h', Math.floor(s / 60) % 60, 'min');
  return units(Math.floor(s / 86400), 'd', Math.floor(s / 3600) % 24, 'h');
}

// formatGoDuration formats a duration in Go's syntax with reasonable precision.
export function formatGoDuration(text) {
  const ms = parseDuration(text);
  if (Number.isNaN(ms)) return text;
  if (ms < 1000) return `${ms < 10 ? ms.toFixed(1) : Math.round(ms)} ms`;
  return ms < 60000 ? `${(ms / 1000).toFixed(1)} s` : formatAge(ms);
}

// formatGap formats how long no leader's work has run, as in the history.
export function formatGap(gap) {
  const bound = { 'at-least': 'at least ', 'at-most': 'at most ' }[gap.bound] || '';
  return bound + formatGoDuration(gap.for);
}

// formatTime formats a time of day, with the date if it is not today.
export function formatTime(ms) {
  const d = new Date(ms);
  if (Number.isNaN(d.getTime())) return 'an unknown time';
  const two = (n) => String(n).padStart(2, '0');
  const time = `${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}`;
  return d.toDateString() === new Date().toDateString() ? time : `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())} ${time}`;
}

// parseDuration parses a duration in Go's syntax, such as 1m30s, and returns milliseconds, or NaN if it is invalid.
export function parseDuration(text) {
  const unit = { h: 3600000, m: 60000, s: 1000, ms: 1, 'µs': 1e-3, us: 1e-3, ns: 1e-6 };
  const parts = [...String(text).matchAll(/([0-9.]+)(h|ms|m|s|µs|us|ns)/g)];
  return parts.length ? parts.reduce((sum, [, n, u]) => sum + Number(n) * unit[u], 0) : NaN;
}
