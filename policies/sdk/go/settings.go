package allot

import (
	"errors"
	"reflect"
	"strconv"
	"strings"
	"unicode"

	types "allot/wit/rollout_allocation_types"
)

// A policy's settings are a struct whose fields a run may set by name:
//
//	type settings struct {
//		Pilot         uint32  `default:"8" summary:"Rollouts to try each prompt with."`
//		SolvedAtLeast float64 `default:"0.125" summary:"Prompts solved less often are passed over."`
//		By            string  `default:"size" choices:"size,age" summary:"What to sort by."`
//	}
//
// The names are pilot, solved-at-least and by. A field is bool, int32, uint32, float64 or string.

// Flag is the value of a setting that is true or false.
func Flag(value bool) Value { return types.MakeValueFlag(value) }

// Integer is the value of a setting that is a whole number.
func Integer(value int32) Value { return types.MakeValueInteger(value) }

// Number is the value of a setting that is a number.
func Number(value float64) Value { return types.MakeValueNumber(value) }

// Text is the value of a setting that is text.
func Text(value string) Value { return types.MakeValueText(value) }

// Every setting, in the order of the fields.
func describe[Settings any]() []Setting {
	fields := reflect.VisibleFields(reflect.TypeFor[Settings]())
	settings := make([]Setting, 0, len(fields))
	for _, field := range fields {
		settings = append(settings, Setting{
			Name:    settingName(field.Name),
			Default: byDefault(field),
			Summary: field.Tag.Get("summary"),
		})
	}
	return settings
}

// SolvedAtLeast is solved-at-least.
func settingName(field string) string {
	var name strings.Builder
	for i, letter := range field {
		if unicode.IsUpper(letter) && i > 0 {
			name.WriteByte('-')
		}
		name.WriteRune(unicode.ToLower(letter))
	}
	return name.String()
}

// The default of a field. One that can't be read is a mistake in the policy's file.
func byDefault(field reflect.StructField) Value {
	text := field.Tag.Get("default")
	var value Value
	var err error
	switch field.Type.Kind() {
	case reflect.Bool:
		var flag bool
		flag, err = strconv.ParseBool(text)
		value = Flag(flag)
	case reflect.Int32, reflect.Uint32:
		var integer int64
		integer, err = strconv.ParseInt(text, 10, 32)
		value = Integer(int32(integer))
	case reflect.Float64:
		var number float64
		number, err = strconv.ParseFloat(text, 64)
		value = Number(number)
	case reflect.String:
		value = Text(text)
	default:
		err = errors.New("a setting is bool, int32, uint32, float64 or string, not " + field.Type.String())
	}
	if err != nil {
		panic("the field " + field.Name + " of the settings, with the default `" + text + "`: " + err.Error())
	}
	return value
}

// The values in force in a run.
func read[Settings any](run *Run) (Settings, error) {
	var settings Settings
	value := reflect.ValueOf(&settings).Elem()
	for _, field := range reflect.VisibleFields(value.Type()) {
		name := settingName(field.Name)
		given, ok := given(run, name)
		if !ok {
			return settings, BadSetting(name, "the host did not give it")
		}
		if reason := assign(value.FieldByIndex(field.Index), field, given); reason != "" {
			return settings, BadSetting(name, reason)
		}
	}
	return settings, nil
}

func given(run *Run, name string) (Value, bool) {
	for _, setting := range run.Settings {
		if setting.F0 == name {
			return setting.F1, true
		}
	}
	return Value{}, false
}

// Puts a value into a field, or says what it should have been.
func assign(to reflect.Value, field reflect.StructField, value Value) string {
	kind := to.Kind()
	switch {
	case kind == reflect.Bool && value.Tag() == types.ValueFlag:
		to.SetBool(value.Flag())
	case kind == reflect.Int32 && value.Tag() == types.ValueInteger:
		to.SetInt(int64(value.Integer()))
	case kind == reflect.Uint32 && value.Tag() == types.ValueInteger:
		if value.Integer() < 0 {
			return strconv.Itoa(int(value.Integer())) + " is not " + expected[kind]
		}
		to.SetUint(uint64(value.Integer()))
	case kind == reflect.Float64 && value.Tag() == types.ValueNumber:
		to.SetFloat(value.Number())
	case kind == reflect.String && value.Tag() == types.ValueText:
		if reason := unknown(value.Text(), field.Tag.Get("choices")); reason != "" {
			return reason
		}
		to.SetString(value.Text())
	default:
		return "expected " + expected[kind]
	}
	return ""
}

var expected = map[reflect.Kind]string{
	reflect.Bool:    "true or false",
	reflect.Int32:   "a whole number",
	reflect.Uint32:  "a whole number, 0 or more",
	reflect.Float64: "a number",
	reflect.String:  "text",
}

// What is wrong with a text that is to be one of some, if they are given.
func unknown(text, choices string) string {
	if choices == "" {
		return ""
	}
	all := strings.Split(choices, ",")
	for _, choice := range all {
		if text == choice {
			return ""
		}
	}
	return "`" + text + "` is unknown; expected one of " + strings.Join(all, ", ")
}
