package corejson

import (
	"reflect"
	"sync"
	"unsafe"
)

var fieldNames sync.Map // of []string, by reflect.Type

// fieldsOf returns the names of the fields of a struct type, by index; empty for those that are left out.
func fieldsOf(t reflect.Type) []string {
	if known, ok := fieldNames.Load(t); ok {
		return known.([]string)
	}
	names := make([]string, t.NumField())
	for i := range names {
		f := t.Field(i)
		if k := f.Type.Kind(); k != reflect.Func && k != reflect.Chan && f.Name != "_" {
			names[i] = f.Name
		}
	}
	fieldNames.Store(t, names)
	return names
}

// access returns an addressable value so that it can also be read and set if it is an unexported field.
func access(v reflect.Value) reflect.Value {
	return reflect.NewAt(v.Type(), unsafe.Pointer(v.UnsafeAddr())).Elem()
}
