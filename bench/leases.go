package main

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// leaseMetric matches the remaining lease of a group.
var leaseMetric = regexp.MustCompile(`^zkelectd_lease_remaining_seconds\{.*?group="(g\d+)".*?\} (\S+)`)

// leastLease returns the shortest lease that any of the groups had left during disturbSpan. A group that does not lead counts as 0.
func (h *hosts) leastLease(ctx context.Context, api string) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, disturbSpan)
	defer cancel()
	least := time.Hour
	samples := 0
	for ctx.Err() == nil {
		leases, err := leasesOf(ctx, api)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			return 0, err
		case len(leases) < len(h.names):
			return 0, fmt.Errorf("%s reports %d leases of %d groups", api, len(leases), len(h.names))
		default:
			samples++
			for _, d := range leases {
				least = min(least, d)
			}
		}
		pause(ctx, 100*time.Millisecond)
	}
	if samples == 0 {
		return 0, fmt.Errorf("%s has not answered in %s", api, disturbSpan)
	}
	return least, nil
}

// leasesOf returns the remaining leases of the groups of a host.
func leasesOf(ctx context.Context, api string) (map[string]time.Duration, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+api+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	leases := make(map[string]time.Duration)
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		m := leaseMetric.FindStringSubmatch(strings.TrimSpace(lines.Text()))
		if m == nil {
			continue
		}
		seconds, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			return nil, err
		}
		leases[m[1]] = time.Duration(seconds * float64(time.Second))
	}
	return leases, nil
}
