package testhelper

import "reflect"

// Alter changes a value, whatever its kind is.
func Alter(f reflect.Value) {
	switch f.Kind() {
	case reflect.String:
		f.SetString(f.String() + "x")
	case reflect.Bool:
		f.SetBool(!f.Bool())
	case reflect.Int, reflect.Int64:
		f.SetInt(f.Int() + 1)
	case reflect.Float64:
		f.SetFloat(f.Float() + 1)
	case reflect.Slice:
		f.Set(reflect.MakeSlice(f.Type(), 1, 1))
		Alter(f.Index(0))
	case reflect.Struct:
		Alter(f.Field(f.NumField() - 1))
	case reflect.Map:
		key, value := reflect.New(f.Type().Key()).Elem(), reflect.New(f.Type().Elem()).Elem()
		Alter(key)
		Alter(value)
		f.Set(reflect.MakeMap(f.Type()))
		f.SetMapIndex(key, value)
	default:
		panic("no way to alter a value of type " + f.Type().String())
	}
}
