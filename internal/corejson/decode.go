package corejson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"
	"time"
)

// Types are the types that values of interfaces may have, by name.
type Types map[string]reflect.Type

// TypesOf returns the types of some values.
func TypesOf(values ...any) Types {
	types := make(Types)
	for _, v := range values {
		t := reflect.TypeOf(v)
		types[t.Name()] = t
	}
	return types
}

// Decode decodes what Encode has returned into *to. Pointers in *to keep what they point to, which is overwritten. It returns an
// error for a field that the type does not have, because then the value was encoded by another version of the program.
func Decode(data []byte, to any, types Types) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var parsed any
	if err := d.Decode(&parsed); err != nil {
		return fmt.Errorf("not a value of the core: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("not a value of the core: text after its end")
	}
	v := reflect.ValueOf(to)
	if v.Kind() != reflect.Pointer || v.IsNil() {
		return errors.New("can only decode into a pointer")
	}
	return decoder{types}.set(v.Elem(), parsed)
}

type decoder struct{ types Types }

func mismatch(v reflect.Value, from any) error {
	return fmt.Errorf("%.40q is not a %s", fmt.Sprint(from), v.Type())
}

// set sets v, which is addressable, to what was parsed.
func (d decoder) set(v reflect.Value, from any) error {
	v = access(v)
	if from == nil {
		v.SetZero()
		return nil
	}
	switch v.Type() {
	case timeType:
		t, err := time.Parse(time.RFC3339Nano, fmt.Sprint(from))
		v.Set(reflect.ValueOf(t))
		return err
	case durationType:
		t, err := time.ParseDuration(fmt.Sprint(from))
		v.SetInt(int64(t))
		return err
	case errorType:
		e := new(replayedError)
		if err := d.set(reflect.ValueOf(&e.recordedError).Elem(), from); err != nil {
			return err
		}
		v.Set(reflect.ValueOf(e))
		return nil
	}
	switch v.Kind() {
	case reflect.Struct:
		return d.setStruct(v, from)
	case reflect.Slice, reflect.Array:
		return d.setList(v, from)
	case reflect.Map:
		return d.setMap(v, from)
	case reflect.Pointer:
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		return d.set(v.Elem(), from)
	case reflect.Interface:
		return d.setInterface(v, from)
	}
	return setPlain(v, from)
}

// setPlain sets a value without parts.
func setPlain(v reflect.Value, from any) error {
	text, quoted := from.(string)
	number, isNumber := from.(json.Number)
	if isNumber {
		text = number.String()
	}
	var err error
	switch k := v.Kind(); {
	case k == reflect.String && quoted:
		v.SetString(text)
	case k == reflect.Bool:
		b, ok := from.(bool)
		if !ok {
			return mismatch(v, from)
		}
		v.SetBool(b)
	case v.CanInt() && isNumber:
		var n int64
		n, err = strconv.ParseInt(text, 10, v.Type().Bits())
		v.SetInt(n)
	case v.CanUint() && isNumber:
		var n uint64
		n, err = strconv.ParseUint(text, 10, v.Type().Bits())
		v.SetUint(n)
	case v.CanFloat() && (isNumber || quoted):
		var f float64
		f, err = strconv.ParseFloat(text, 64)
		v.SetFloat(f)
	default:
		return mismatch(v, from)
	}
	return err
}

func (d decoder) setStruct(v reflect.Value, from any) error {
	fields, ok := from.(map[string]any)
	if !ok {
		return mismatch(v, from)
	}
	known := 0
	for i, name := range fieldsOf(v.Type()) {
		value, ok := fields[name]
		f := v.Field(i)
		switch {
		case name == "" || !ok && f.Kind() == reflect.Pointer && !f.IsNil():
			continue
		case !ok:
			access(f).SetZero()
			continue
		}
		known++
		if err := d.set(f, value); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	if known < len(fields) {
		for name := range fields {
			if !slices.Contains(fieldsOf(v.Type()), name) {
				return fmt.Errorf("%s has no field %s in this version", v.Type(), name)
			}
		}
	}
	return nil
}

func (d decoder) setList(v reflect.Value, from any) error {
	if text, ok := from.(string); ok && v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Uint8 {
		v.SetBytes([]byte(text))
		return nil
	}
	list, ok := from.([]any)
	if !ok || v.Kind() == reflect.Array && len(list) != v.Len() {
		return mismatch(v, from)
	}
	if v.Kind() == reflect.Slice {
		v.Set(reflect.MakeSlice(v.Type(), len(list), len(list)))
	}
	for i, value := range list {
		if err := d.set(v.Index(i), value); err != nil {
			return fmt.Errorf("%d: %w", i, err)
		}
	}
	return nil
}

func (d decoder) setMap(v reflect.Value, from any) error {
	v.Set(reflect.MakeMap(v.Type()))
	add := func(key, value any) error {
		k, e := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		if err := errors.Join(d.set(k, key), d.set(e, value)); err != nil {
			return fmt.Errorf("%v: %w", key, err)
		}
		v.SetMapIndex(k, e)
		return nil
	}
	var errs []error
	switch entries := from.(type) {
	case map[string]any:
		for key, value := range entries {
			errs = append(errs, add(key, value))
		}
	case []any:
		for _, entry := range entries {
			pair, ok := entry.([]any)
			if !ok || len(pair) != 2 {
				return mismatch(v, entry)
			}
			errs = append(errs, add(pair[0], pair[1]))
		}
	default:
		return mismatch(v, from)
	}
	return errors.Join(errs...)
}

func (d decoder) setInterface(v reflect.Value, from any) error {
	fields, ok := from.(map[string]any)
	if !ok {
		return mismatch(v, from)
	}
	name, _ := fields["type"].(string)
	t, known := d.types[name]
	if !known || !t.Implements(v.Type()) {
		return fmt.Errorf("%q is not a %s in this version", name, v.Type())
	}
	value := reflect.New(t).Elem()
	if err := d.set(value, fields["value"]); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	v.Set(value)
	return nil
}
