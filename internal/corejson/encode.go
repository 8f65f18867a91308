package corejson

import (
	"bytes"
	"encoding/json"
	"math"
	"reflect"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"
)

var (
	timeType     = reflect.TypeFor[time.Time]()
	durationType = reflect.TypeFor[time.Duration]()
	errorType    = reflect.TypeFor[error]()
)

// Append appends the encoding of v to b. It follows pointers, so v must not refer to itself.
func Append(b []byte, v any) []byte { return appendValue(b, reflect.ValueOf(v)) }

// Encode returns the encoding of v.
func Encode(v any) []byte { return Append(nil, v) }

func appendValue(b []byte, v reflect.Value) []byte {
	if !v.IsValid() {
		return append(b, "null"...)
	}
	switch v.Type() {
	case timeType:
		return appendString(b, v.Interface().(time.Time).Format(time.RFC3339Nano))
	case durationType:
		return appendString(b, time.Duration(v.Int()).String())
	case errorType:
		return appendError(b, v)
	}
	switch v.Kind() {
	case reflect.Bool:
		return strconv.AppendBool(b, v.Bool())
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return strconv.AppendInt(b, v.Int(), 10)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return strconv.AppendUint(b, v.Uint(), 10)
	case reflect.Float32, reflect.Float64:
		return appendFloat(b, v.Float())
	case reflect.String:
		return appendString(b, v.String())
	case reflect.Struct:
		return appendStruct(b, v)
	case reflect.Slice, reflect.Array:
		return appendList(b, v)
	case reflect.Map:
		return appendMap(b, v)
	case reflect.Pointer:
		return appendValue(b, v.Elem())
	case reflect.Interface:
		return appendInterface(b, v)
	}
	return append(b, "null"...) // functions and channels
}

func appendFloat(b []byte, f float64) []byte {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return appendString(b, strconv.FormatFloat(f, 'g', -1, 64))
	}
	return strconv.AppendFloat(b, f, 'g', -1, 64)
}

// appendString appends a JSON string. Bytes that are not valid UTF-8 are replaced, as in every JSON text.
func appendString(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			return appendEscaped(b, s)
		}
	}
	return append(append(append(b, '"'), s...), '"')
}

func appendEscaped(b []byte, s string) []byte {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	if e.Encode(s) != nil {
		return append(b, `""`...) // not reached: it is a string
	}
	return append(b, bytes.TrimSuffix(text.Bytes(), []byte("\n"))...)
}

// appendStruct appends a struct. Values read from its unexported fields could not be read further, so they are accessed by address.
func appendStruct(b []byte, v reflect.Value) []byte {
	if !v.CanAddr() {
		addressable := reflect.New(v.Type()).Elem()
		addressable.Set(v)
		v = addressable
	}
	b = append(b, '{')
	first := true
	for i, name := range fieldsOf(v.Type()) {
		f := v.Field(i)
		if name == "" || f.IsZero() {
			continue
		}
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(append(append(b, '"'), name...), '"', ':')
		b = appendValue(b, access(f))
	}
	return append(b, '}')
}

// appendList appends a slice or an array. Bytes, which hold records as JSON, become a string.
func appendList(b []byte, v reflect.Value) []byte {
	if v.Kind() == reflect.Slice && v.IsNil() {
		return append(b, "null"...)
	}
	if v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Uint8 {
		if data := v.Bytes(); utf8.Valid(data) {
			return appendString(b, string(data))
		}
	}
	b = append(b, '[')
	for i := range v.Len() {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendValue(b, v.Index(i))
	}
	return append(b, ']')
}

// appendMap appends a map, sorted: as an object if its keys are strings, else as a list of pairs.
func appendMap(b []byte, v reflect.Value) []byte {
	type entry struct{ key, value []byte }
	entries := make([]entry, 0, v.Len())
	for iter := v.MapRange(); iter.Next(); {
		entries = append(entries, entry{appendValue(nil, iter.Key()), appendValue(nil, iter.Value())})
	}
	slices.SortFunc(entries, func(x, y entry) int { return bytes.Compare(x.key, y.key) })
	object := v.Type().Key().Kind() == reflect.String
	begin, middle, end := "[", "],[", "]"
	if object {
		begin, middle, end = "{", ",", "}"
	} else if len(entries) > 0 {
		begin, end = "[[", "]]"
	}
	b = append(b, begin...)
	for i, e := range entries {
		if i > 0 {
			b = append(b, middle...)
		}
		b = append(b, e.key...)
		if object {
			b = append(b, ':')
		} else {
			b = append(b, ',')
		}
		b = append(b, e.value...)
	}
	return append(b, end...)
}

// appendInterface appends a value with the name of its type.
func appendInterface(b []byte, v reflect.Value) []byte {
	if v.IsNil() {
		return append(b, "null"...)
	}
	v = v.Elem()
	b = append(appendString(append(b, `{"type":`...), v.Type().Name()), `,"value":`...)
	return append(appendValue(b, v), '}')
}
