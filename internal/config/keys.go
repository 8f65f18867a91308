package config

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/policy"
	"zkelectd/internal/sys/suggest"
)

// kind is the type of a key's value.
type kind string

const (
	text     kind = "string"
	integer  kind = "integer"
	number   kind = "number"
	boolean  kind = "boolean"
	duration kind = "duration"
	list     kind = "list of strings"
	texts    kind = "map of strings"
	integers kind = "map of integers"
	choices  kind = "list of {when, use}"
	tables   kind = "map of maps of strings"
	levels   kind = "{command} or {agent, options, secrets, nodes}, or a list of them"
)

// Key describes a setting. A setting is defined once, by the tags of its field in [Config]:
//
//	yaml      its name in the section; ",squash" for a struct that is no section of its own
//	doc       its meaning; ",squash" structs replace {doc} in the texts of their fields
//	default   its default, in the form of an environment variable
//	reload    "yes" if a reload applies it
//	scope     where it belongs if one daemon has many groups; also for a whole section
//	min, max  the limits of a number or a duration
//	oneof     the texts that it can be
//	program   "yes" for a command that zkelectd runs
type Key struct {
	Name    string
	Kind    kind
	Default any
	Reload  bool
	Doc     string
	Scope   Scope
	// Values are the texts that it can be; empty for any.
	Values []string

	tag   reflect.StructTag
	index []int // of the field
}

// Scope says where a setting belongs if one daemon has many groups.
type Scope string

// A setting of the host is in the main file. A setting of a group is in the group's file, or in the defaults of the
// main file. One with both scopes is in the main file, and a group file can replace it.
const (
	HostScope  Scope = "host"
	GroupScope Scope = "group"
	BothScopes Scope = "host, group"
)

// Env returns the environment variable that sets the key.
func (k Key) Env() string { return envPrefix + strings.ToUpper(strings.ReplaceAll(k.Name, ".", "_")) }

const envPrefix = "ZKELECTD_"

// Keys returns all settings, in the order of the reference.
func Keys() []Key { return allKeys() }

var allKeys = sync.OnceValue(func() []Key { return keysOf(reflect.TypeFor[Config](), Key{Scope: HostScope}) })

// keysOf returns the settings of a section. Their names begin with that of the section, and their indexes with its
// index.
func keysOf(t reflect.Type, section Key) (all []Key) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, option, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		k := Key{
			Name: section.Name + name, Reload: f.Tag.Get("reload") != "", Scope: cmp.Or(Scope(f.Tag.Get("scope")),
				section.Scope),
			Doc: strings.ReplaceAll(f.Tag.Get("doc"), "{doc}", section.Doc), tag: f.Tag,
			index: append(section.index[:len(section.index):len(section.index)], i),
		}
		switch {
		case name == "-":
		case option == "squash":
			all = append(all, keysOf(f.Type, k)...)
		case f.Type.Kind() == reflect.Struct:
			k.Name += "."
			all = append(all, keysOf(f.Type, k)...)
		default:
			k.Kind, k.Default = kindOf(f.Type)
			k.Doc = docValues.Replace(k.Doc)
			if value := f.Tag.Get("default"); value != "" {
				k.Default = k.value(strings.ReplaceAll(value, "{hostname}", hostName()))
			}
			if values := f.Tag.Get("oneof"); values != "" {
				k.Values = strings.Split(values, ", ")
			}
			all = append(all, k)
		}
	}
	return all
}

// docValues are the values in the texts of the tag doc that depend on other packages.
var docValues = strings.NewReplacer("{types}", strings.Join(policy.Types(), ", "), "{rankers}",
	strings.Join(policy.Rankers(), ", "),
	"{slots}", strconv.Itoa(MaxSlots))

// kindOf returns the kind of a setting whose field has a type, and its empty value.
func kindOf(t reflect.Type) (kind, any) {
	switch reflect.Zero(t).Interface().(type) {
	case int:
		return integer, 0
	case float64:
		return number, 0.0
	case bool:
		return boolean, false
	case time.Duration:
		return duration, time.Duration(0)
	case []string:
		return list, []string{}
	case map[string]string:
		return texts, map[string]string{}
	case map[string]int:
		return integers, map[string]int{}
	case Tables:
		return tables, Tables{}
	case []cluster.Strategy:
		return choices, []cluster.Strategy{}
	case []FencingLevel:
		return levels, []FencingLevel{}
	}
	return text, ""
}

// Field returns the setting's field in a configuration.
func (k Key) Field(c *Config) reflect.Value { return reflect.ValueOf(c).Elem().FieldByIndex(k.index) }

// value returns the value of a tag.
func (k Key) value(tag string) any {
	v, err := fromText(k.Kind, tag)
	if err != nil {
		panic(fmt.Sprintf("config: a tag of %s: %v", k.Name, err))
	}
	return v
}

// check returns an error unless a value is one that the tags permit.
func (k Key) check(value reflect.Value) error {
	if len(k.Values) > 0 && !slices.Contains(k.Values, value.String()) {
		return fmt.Errorf("%q is not one of %s%s", value, strings.Join(k.Values, ", "),
			suggest.DidYouMean(value.String(), k.Values))
	}
	least, most := k.tag.Get("min"), k.tag.Get("max")
	below := least != "" && quantity(value) < quantity(reflect.ValueOf(k.value(least)))
	switch above := most != "" && quantity(value) > quantity(reflect.ValueOf(k.value(most))); {
	case (below || above) && most != "":
		return fmt.Errorf("%v is not between %s and %s", value, least, most)
	case !below:
		return nil
	case least == "1ns":
		return errors.New("must be greater than 0s")
	case least == "0":
		return errors.New("must not be negative")
	}
	return fmt.Errorf("must be %s or more", least)
}

// quantity returns the value of a number or a duration.
func quantity(v reflect.Value) float64 {
	if v.CanInt() {
		return float64(v.Int())
	}
	return v.Float()
}

// keysByName returns the settings by their names.
var keysByName = sync.OnceValue(func() map[string]Key {
	m := make(map[string]Key)
	for _, k := range Keys() {
		m[k.Name] = k
	}
	return m
})

// IsGroupKey reports whether a group file can have the setting with that name.
func IsGroupKey(name string) bool { return keysByName()[name].Scope != HostScope }
