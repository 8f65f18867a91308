package config

import (
	"strings"
	"testing"
	"time"
)

func TestPromotionErrors(t *testing.T) {
	const orders = "child: {command: [a], promote: {exec: [b]}, demote: {http: 'http://127.0.0.1/d'}"
	const unit = "child: {unit: a.service, promote: {exec: [b]}, demote: {exec: [b]}"
	for text, want := range map[string]string{
		orders + "}": "",
		orders + ", warm: {tcp: '127.0.0.1:80'}, ready: {http: 'http://127.0.0.1/'}}": "",
		orders + "}\nslots: {count: 2, per_node: 1}":                                  "",
		orders + "}\nslots: {count: 2}":                                               "child.promote: needs slots.per_node: 1",
		orders + ", env: {A: '${ZKELECTD_SLOT}'}}\nslots: {count: 2, per_node: 1}":    "child.promote: the work contains ${ZKELECTD_SLOT}",
		orders + ", ready: {notify: true}}":                                           "child.ready.notify: cannot be set together with child.promote",
		orders + "}\nwatchdog_device: {mode: automatic}":                              "watchdog_device.mode: cannot be used together with child.promote",
		unit + "}": "",
		unit + "}\nslots: {count: 2, per_node: 1}": "",
		strings.ReplaceAll(unit, "a.service", "'a@${ZKELECTD_SLOT}.service'") + "}\nslots: {count: 2, per_node: 1}": "child.promote: the work contains ${ZKELECTD_SLOT}",
		unit + ", warm: {notify: true}}":                                                      "child.warm.notify: cannot be set together with child.unit",
		orders + ", warm: {notify: true}}":                                                    "",
		orders + ", warm: {notify: true, exec: [b]}}":                                         "cannot be set together with child.warm",
		"child: {command: [a], warm: {notify: true}}":                                         "child.warm: has no effect",
		"child: {none: true, promote: {exec: [b]}, demote: {exec: [b]}}":                      "child.promote: needs child.command or child.unit",
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
