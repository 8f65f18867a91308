package config

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Slots configures how many leaders a group has. Both values are only a proposal for the group's first leaders; from
// then on those in ZooKeeper are in force.
type Slots struct {
	// Count is 0 for a group with one leader.
	Count   int `yaml:"count" min:"0" max:"128" reload:"yes" doc:"How many leaders the group has, each with its own slot and work: 1 to {slots}; 0 for a group with one leader, without slots. The host that creates the group writes this value to ZooKeeper, and only the command 'slots' changes it there. See docs/groups.md."`
	PerNode int `yaml:"per_node" min:"0" reload:"yes" doc:"How many slots one host can lead at most; 0 for all. As slots.count, it is only the first value."`
}

// Enabled reports whether the group has slots.
func (s Slots) Enabled() bool { return s.Count > 0 }

// Limit returns how many slots one host can lead at most.
func (s Slots) Limit() int { return cmp.Or(s.PerNode, s.Count) }

// MaxSlots limits the slots of a group.
const MaxSlots = 128

// The variables of a slot. zkelectd replaces them in the settings of the work, before it starts anything.
const (
	slotVariable  = "${ZKELECTD_SLOT}"
	slotsVariable = "${ZKELECTD_SLOTS}"
)

// expandable reports whether the values of a setting can contain the variables of a slot.
func expandable(key string) bool {
	section, _, _ := strings.Cut(key, ".")
	return (section == "child" || section == "hooks") && key != "child.containment"
}

// OfSlot returns the configuration of the work in one slot of count: the variables of the slot are replaced.
func (c Config) OfSlot(slot, count int) Config {
	replacer := strings.NewReplacer(slotVariable, strconv.Itoa(slot), slotsVariable, strconv.Itoa(count))
	for key, field := range c.fields() {
		if !expandable(key) {
			continue
		}
		switch v := field.Addr().Interface().(type) {
		case *string:
			*v = replacer.Replace(*v)
		case *[]string:
			*v = slices.Clone(*v)
			for i := range *v {
				(*v)[i] = replacer.Replace((*v)[i])
			}
		case *map[string]string:
			replaced := make(map[string]string, len(*v))
			for name, text := range *v {
				replaced[name] = replacer.Replace(text)
			}
			*v = replaced
		}
	}
	return c
}

// hasSlotVariable reports whether a value contains a variable of a slot.
func hasSlotVariable(value any) bool {
	text := fmt.Sprint(value)
	return strings.Contains(text, slotVariable) || strings.Contains(text, slotsVariable)
}

func (c *Config) checkSlots(report func(string, string, ...any)) {
	s := c.Slots
	switch {
	case s.PerNode > 0 && !s.Enabled():
		report("slots.per_node", "has no effect: set slots.count as well")
	case s.PerNode > max(s.Count, 0):
		report("slots.per_node", "%d is more than slots.count (%d)", s.PerNode, s.Count)
	}
	for key, value := range c.settings() {
		switch {
		case !hasSlotVariable(value):
		case !expandable(key):
			report(key, "contains %s or %s, which are replaced only in values of child.* and hooks.*", slotVariable,
				slotsVariable)
		case !s.Enabled():
			report(key, "contains %s or %s, which only the work of a group with slots has: set slots.count",
				slotVariable, slotsVariable)
		}
	}
	c.checkSlotUnit(report)
}

// checkSlotUnit reports a unit that two slots would share on one host.
func (c *Config) checkSlotUnit(report func(string, string, ...any)) {
	unit := c.Child.Unit
	switch {
	case !c.Slots.Enabled() || unit == "" || c.Child.Promotable():
	case strings.Contains(unit, slotsVariable):
		report("child.unit", "%q contains %s: the name of a unit cannot depend on how many slots there are", unit,
			slotsVariable)
	case !strings.Contains(unit, slotVariable):
		report("child.unit", "%q would be the unit of all slots: each needs its own, as in app@%s.service", unit,
			slotVariable)
	}
}

// units returns the systemd units that a group can have on a host.
func (c Config) units() []string {
	if c.Child.Unit == "" {
		return nil
	}
	if !c.Slots.Enabled() || c.Child.Promotable() {
		return []string{c.Child.Unit}
	}
	names := make([]string, MaxSlots)
	for i := range names {
		names[i] = strings.ReplaceAll(c.Child.Unit, slotVariable, strconv.Itoa(i))
	}
	return names
}
