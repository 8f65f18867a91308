package config

import (
	"strings"
	"testing"
	"time"
)

func TestPromotionErrors(t *testing.T) {
	const orders = "child: {command: [a], promote: {exec: [b]}, demote: {http: 'http://127.0.0.1/d'}"
	for text, want := range map[string]string{
		orders + "}": "",
		orders + ", warm: {tcp: '127.0.0.1:80'}, ready: {http: 'http://127.0.0.1/'}}":         "",
		orders + "}\nslots: {count: 2, per_node: 1}":                                          "",
		orders + "}\nslots: {count: 2}":                                                       "child.promote: needs slots.per_node: 1",
		orders + ", env: {A: '${ZKELECTD_SLOT}'}}\nslots: {count: 2, per_node: 1}":            "child.command: contains ${ZKELECTD_SLOT}",
		orders + ", ready: {notify: true}}":                                                   "child.ready.notify: cannot be set together with child.promote",
		orders + "}\nwatchdog_device: {mode: automatic}":                                      "watchdog_device.mode: cannot be used together with child.promote",
		"child: {unit: a.service, promote: {exec: [b]}, demote: {exec: [b]}}":                 "child.promote: needs child.command",
		"child: {command: [a], promote: {exec: [b]}}":                                         "child.promote and child.demote belong together",
		"child: {command: [a], demote: {exec: [b]}}":                                          "child.promote and child.demote belong together",
		"child: {command: [a], warm: {exec: [b]}}":                                            "child.warm: has no effect",
		"child: {command: [a], promote: {exec: [b], http: 'http://a/'}, demote: {exec: [b]}}": "child.promote.http: cannot be set together with child.promote.exec",
		"child: {command: [a], promote: {http: 'ftp://a/'}, demote: {exec: [b]}}":             "child.promote.http: \"ftp://a/\" is not an http or https URL",
		orders + ", warm: {exec: [b], tcp: 'a:1'}}":                                           "child.warm.tcp: cannot be set together with child.warm.exec",
	} {
		_, err := Load(Sources{File: file(t, text)})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got  %v\nwant %s", text, err, want)
		}
	}
	if c := mustLoad(t, Sources{File: file(t, orders+", ready: {timeout: 5s}}")}); c.TakeoverTimeout() != 20*time.Second {
		t.Errorf("a takeover may take %s", c.TakeoverTimeout())
	}
}
