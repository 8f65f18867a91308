package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// checkMonitoring waits until Prometheus sees one leader, checks that it has loaded the alerts, and returns the lease.
func (s *stack) checkMonitoring(ctx context.Context) (time.Duration, error) {
	out, err := s.run(ctx, slices.Concat(s.compose, []string{"port", "prometheus", "9090"})...)
	if err != nil {
		return 0, err
	}
	base := "http://" + strings.TrimSpace(out)
	err = await(ctx, "Prometheus to see one leader of four members", func() (bool, error) {
		leaders, err := query(ctx, base, "sum(zkelectd_is_leader)")
		if err != nil {
			return false, nil // Prometheus is not up yet
		}
		up, err := query(ctx, base, "sum(up)")
		return leaders == 1 && up == 4, err
	})
	if err != nil {
		return 0, err
	}
	if err := checkRules(ctx, base); err != nil {
		return 0, err
	}
	lease, err := query(ctx, base, "max(zkelectd_lease_seconds)")
	return time.Duration(lease * float64(time.Second)), err
}

// query returns the single value of an expression, or -1 if there is none.
func query(ctx context.Context, base, expression string) (float64, error) {
	var answer struct {
		Data struct{ Result []struct{ Value []any } }
	}
	if err := get(ctx, base+"/api/v1/query?query="+url.QueryEscape(expression), &answer); err != nil {
		return 0, err
	}
	if len(answer.Data.Result) != 1 || len(answer.Data.Result[0].Value) != 2 {
		return -1, nil
	}
	return strconv.ParseFloat(fmt.Sprint(answer.Data.Result[0].Value[1]), 64)
}

// checkRules checks that the alerts are loaded and work, and that those about the leader do not fire.
func checkRules(ctx context.Context, base string) error {
	var answer struct {
		Data struct {
			Groups []struct {
				Rules []struct{ Name, Type, State, Health, LastError string }
			}
		}
	}
	states := make(map[string]string)
	err := await(ctx, "Prometheus to evaluate its rules", func() (bool, error) {
		if err := get(ctx, base+"/api/v1/rules", &answer); err != nil {
			return false, err
		}
		known := true
		for _, g := range answer.Data.Groups {
			for _, r := range g.Rules {
				if r.Health == "err" {
					return false, fmt.Errorf("the rule %s does not work: %s", r.Name, r.LastError)
				}
				known = known && r.Health == "ok"
				if r.Type == "alerting" {
					states[r.Name] = r.State
				}
			}
		}
		return known, nil
	})
	if err != nil {
		return err
	}
	for _, name := range []string{"ZkelectdNoLeader", "ZkelectdTwoLeaders"} {
		if state, ok := states[name]; !ok || state == "firing" {
			return fmt.Errorf("the alert %s is %q", name, state)
		}
	}
	return nil
}

func get(ctx context.Context, address string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", address, response.Status)
	}
	return json.NewDecoder(response.Body).Decode(into)
}
