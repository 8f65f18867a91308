package faults

import (
	"context"
	"io"
	"net/http"
	"os/exec"
	"regexp"
	"strconv"
	"time"
)

// traffic is what leaders in failsafe mode have asked: in how many rounds, and how many bytes and packets went between nodes, with
// those of TCP and IP.
type traffic struct{ rounds, bytes, packets uint64 }

var (
	roundsMetric = regexp.MustCompile(`(?m)^zkelectd_failsafe_rounds_total (\d+)$`)
	peerCounter  = regexp.MustCompile(`packets (\d+) bytes (\d+)`)
)

// peerCounters is the name of the kernel's counter of what goes between nodes.
const peerCounters = "peers"

// traffic returns what has been asked since the daemons have started, and what has gone between nodes.
func (f *fleet) traffic() (all traffic) {
	f.t.Helper()
	for _, n := range f.nodes {
		metrics, err := get(f.t.Context(), "http://"+n.api+"/metrics")
		if err != nil {
			f.t.Fatal(err)
		}
		found := roundsMetric.FindStringSubmatch(metrics)
		if found == nil {
			f.t.Fatalf("%s does not count rounds", n.id)
		}
		all.rounds += number(found[1])
	}
	out, err := exec.CommandContext(f.t.Context(), "nft", "list", "counter", "inet", peerTable(), peerCounters).CombinedOutput()
	found := peerCounter.FindSubmatch(out)
	if err != nil || found == nil {
		f.t.Fatalf("nft: %v: %s", err, out)
	}
	all.packets, all.bytes = number(string(found[1])), number(string(found[2]))
	return all
}

func number(s string) uint64 {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		panic(err) // the pattern has digits only
	}
	return n
}

func get(ctx context.Context, url string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := c.Do(r)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return string(body), err
}

// logTraffic logs what went between nodes in a time.
func (f *fleet) logTraffic(before traffic, lasted time.Duration) {
	f.t.Helper()
	now := f.traffic()
	rounds := now.rounds - before.rounds
	if rounds == 0 {
		f.t.Errorf("nobody has asked for promises in %s", lasted)
		return
	}
	groups := len(f.groups) - 1
	f.t.Logf("rounds: %d in %s, %.1f a second for each group in failsafe mode; between nodes %.0f bytes and %.1f packets for each round",
		rounds, lasted.Round(time.Millisecond), float64(rounds)/lasted.Seconds()/float64(groups), float64(now.bytes-before.bytes)/float64(rounds),
		float64(now.packets-before.packets)/float64(rounds))
}
