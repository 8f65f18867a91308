# /etc/cron.d/nightly-report: the same file on every host. One of them runs the report. Its group is created once:
# zkelectd init --root /jobs/nightly-report
# --once-per is a little shorter than the interval of the job: a host whose clock is late does not repeat the run.
SHELL=/bin/sh
PATH=/usr/local/bin:/usr/bin:/bin
0 2 * * * root zkelectd exec -g nightly-report --once-per 23h -- /usr/local/bin/nightly-report
