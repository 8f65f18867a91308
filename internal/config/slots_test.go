package config

import (
	"reflect"
	"strings"
	"testing"
)

// The values of slots, and the variables of a slot, are checked; every error has its source, key and reason.
func TestSlotErrors(t *testing.T) {
	for text, want := range map[string]string{
		"slots: {count: 129}":                                                                "z.yaml:1: slots.count: 129 is not between 0 and 128",
		"slots: {count: -1}":                                                                 "z.yaml:1: slots.count: -1 is not between 0 and 128",
		"slots: {count: 2, per_node: 3}":                                                     "z.yaml:1: slots.per_node: 3 is more than slots.count (2)",
		"slots: {per_node: 1}":                                                               "z.yaml:1: slots.per_node: has no effect: set slots.count as well",
		"child: {command: [a, '${ZKELECTD_SLOT}']}":                                          "z.yaml:1: child.command: contains ${ZKELECTD_SLOT} or ${ZKELECTD_SLOTS}, which only the work of a group with slots has: set slots.count",
		"hooks: {pre_start: [a, '${ZKELECTD_SLOTS}']}":                                       "z.yaml:1: hooks.pre_start: contains ${ZKELECTD_SLOT} or",
		"slots: {count: 2}\nnode: {id: 'n${ZKELECTD_SLOT}'}":                                 "z.yaml:2: node.id: contains ${ZKELECTD_SLOT} or ${ZKELECTD_SLOTS}, which are replaced only in values of child.* and hooks.*",
		"slots: {count: 2}\nnode: {labels: {a: '${ZKELECTD_SLOTS}'}}":                        "z.yaml:2: node.labels: contains",
		"slots: {count: 2}\npolicy: {strategies: [{when: '${ZKELECTD_SLOT}', use: first}]}":  "z.yaml:2: policy.strategies: ",
		"slots: {count: 2}\nzookeeper: {root: '/a/${ZKELECTD_SLOT}'}":                        "z.yaml:2: zookeeper.root: contains",
		"slots: {count: 2}\nchild: {env: {'A${ZKELECTD_SLOT}': b}}":                          "is not the name of a variable",
		"slots: {count: 2}\nchild: {unit: app.service}":                                      `z.yaml:2: child.unit: "app.service" would be the unit of all slots: each needs its own, as in app@${ZKELECTD_SLOT}.service`,
		"slots: {count: 2}\nchild: {unit: 'app@${ZKELECTD_SLOT}-${ZKELECTD_SLOTS}.service'}": "cannot depend on how many slots there are",
		"slots: {count: 2}\nchild: {unit: 'app ${ZKELECTD_SLOT}.service'}":                   `"app 0.service" is not the name of a service`,
	} {
		_, err := Load(Sources{File: file(t, text)})
		if err == nil || !strings.Contains(strings.ReplaceAll(err.Error(), "\n", " | "), want) {
			t.Errorf("%q: got  %v\nwant %s", text, err, want)
		}
	}
}

// The variables of a slot are replaced in the settings of the work, and only there.
func TestConfigurationOfASlot(t *testing.T) {
	c := mustLoad(t, Sources{File: file(t, `
slots: {count: 8}
child:
  command: [app, "--part=${ZKELECTD_SLOT}/${ZKELECTD_SLOTS}", "${ZKELECTD_TERM}"]
  dir: /data/${ZKELECTD_SLOT}
  env: {PART: "${ZKELECTD_SLOT}"}
  ready: {http: "http://127.0.0.1:801${ZKELECTD_SLOT}/ok"}
hooks: {pre_start: [mount, "${ZKELECTD_SLOT}"]}
`)})
	if !c.Slots.Enabled() || c.Slots.Limit() != 8 {
		t.Errorf("%+v\n%s", c.Slots, c.YAML())
	}
	before := c.YAML()
	got := c.OfSlot(3, 4)
	for key, want := range map[string]any{
		"child.command": []string{"app", "--part=3/4", "${ZKELECTD_TERM}"}, "child.dir": "/data/3", "child.env": map[string]string{"PART": "3"},
		"child.ready.http": "http://127.0.0.1:8013/ok", "hooks.pre_start": []string{"mount", "3"}, "slots.count": 8,
	} {
		if value := got.settings()[key]; !reflect.DeepEqual(value, want) {
			t.Errorf("%s is %v, want %v", key, value, want)
		}
	}
	if c.YAML() != before {
		t.Error("the configuration of the group has changed")
	}
	if one := mustLoad(t, Sources{File: file(t, "slots: {count: 4, per_node: 1}\n")}); one.Slots.Limit() != 1 {
		t.Errorf("%+v", one.Slots)
	}
}

// The slots of all groups have different units on a host, however many slots there will be.
func TestUnitsOfSlots(t *testing.T) {
	h := newHost(t, "", map[string]string{"a": "slots: {count: 2}\nchild: {unit: 'app@${ZKELECTD_SLOT}.service'}", "b": "child: {unit: app@5.service}"})
	if got, want := h.fault(), `b.yaml:1: child.unit: "app@5.service" is the unit of group a, too`; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	h.put("b.yaml", "child: {unit: app@128.service}")
	h.load()
}

// A reload changes how many slots a file proposes, but never between one leader and slots.
func TestReloadOfSlots(t *testing.T) {
	src := Sources{File: file(t, "slots: {count: 2}\n"+lockOnly)}
	running, err := LoadHost(src)
	if err != nil {
		t.Fatal(err)
	}
	write(t, src.File, "slots: {count: 4, per_node: 1}\n"+lockOnly)
	r, err := ReloadHost(src, running, false)
	if err != nil || summary(r) != "added [] changed [cluster] removed [] refused []" {
		t.Fatalf("%v, %s", err, summary(r))
	}
	if reload, restart := Diff(running.Config, r.Host.Config); strings.Join(reload, " ") != "slots.count slots.per_node" || restart != nil {
		t.Errorf("a reload changes %v, a restart %v", reload, restart)
	}
	write(t, src.File, lockOnly)
	if _, err := ReloadHost(src, running, false); err == nil || !strings.Contains(err.Error(), "z.yaml: slots.count: is 0, and was 2: a group with one leader and one with slots are different groups") {
		t.Errorf("without slots: %v", err)
	}
}
