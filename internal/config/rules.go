package config

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"zkelectd/internal/cluster"
)

// Rules returns the part of the configuration that applies to the whole group once it is published.
func (c Config) Rules() cluster.Rules {
	r := c.Policy.Rules
	if c.Failsafe.Enabled {
		r.Failsafe = cluster.FailsafeRules{Enabled: true, Max: cluster.Duration(c.Failsafe.Max)}
	}
	if c.Score.AtElection {
		r.RollCall = cluster.RollCallRules{Enabled: true, Timeout: cluster.Duration(c.Score.Timeout)}
	}
	return r
}

// WithRules is the inverse of Rules: it returns c with the settings that the rules determine.
func (c Config) WithRules(r cluster.Rules) Config {
	c.Failsafe.Enabled, c.Failsafe.Max = r.Failsafe.Enabled, time.Duration(r.Failsafe.Max)
	if c.Score.AtElection = r.RollCall.Enabled; r.RollCall.Enabled {
		c.Score.Timeout = r.RollCall.Wait()
	}
	r.Failback, r.SpreadBy = cmp.Or(r.Failback, cluster.FailbackImmediate), cmp.Or(r.SpreadBy, cluster.SpreadByHost)
	r.ConfirmAfter = cmp.Or(r.ConfirmAfter, cluster.ConfirmNever)
	r.Failsafe, r.RollCall = cluster.FailsafeRules{}, cluster.RollCallRules{}
	c.Policy.Rules = r
	return c
}

// ofRules reports whether a key is one from which Rules are derived.
func ofRules(key string) bool {
	return strings.HasPrefix(key, "policy.") && key != "policy.exec" || slices.Contains([]string{failsafeEnabled, failsafeMax, scoreAtElection, scoreTimeout}, key)
}

func defaults() Config {
	c, err := merged(nil)
	if err != nil {
		panic(fmt.Sprintf("config: the defaults have the wrong type: %v", err))
	}
	return c
}

// RulesYAML returns the rules as the part of a configuration file that sets them.
func RulesYAML(r cluster.Rules) string {
	return yamlOf(defaults().WithRules(r).settings(), nil, ofRules)
}

// RulesDiff returns the differences between rules, each as "key: before -> after".
func RulesDiff(before, after cluster.Rules) []string {
	a, b := defaults().WithRules(before).settings(), defaults().WithRules(after).settings()
	var lines []string
	for _, k := range Keys() {
		x, y := a[k.Name], b[k.Name]
		if !ofRules(k.Name) || reflect.DeepEqual(x, y) || (empty(x) && empty(y)) {
			continue
		}
		lines = append(lines, fmt.Sprintf("%s: %s -> %s", k.Name, inline(x), inline(y)))
	}
	return slices.Clip(lines)
}
