// Package settings reads a struct of settings: for policies and for graders. The values are bool, int32, float64 and
// string.
package settings

import (
	"errors"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// Setting is a field of the struct.
type Setting struct {
	Name    string
	Default any
	Summary string
}

// Bad is a setting that can't be worked with.
type Bad struct{ Name, Reason string }

// Of gives every setting, in the order of the fields.
func Of[Settings any]() []Setting {
	var settings []Setting
	for _, field := range reflect.VisibleFields(reflect.TypeFor[Settings]()) {
		checkTag(field)
		settings = append(settings, Setting{Name(field.Name), byDefault(field), field.Tag.Get("summary")})
	}
	return settings
}

var keys = []string{"default", "summary", "minimum", "maximum", "choices"}

// Panics if the tag has another key: a misspelt `minimum` would be no bound.
func checkTag(field reflect.StructField) {
	for rest := string(field.Tag); ; {
		key, after, _ := strings.Cut(strings.TrimSpace(rest), ":")
		quoted, err := strconv.QuotedPrefix(after)
		if err != nil {
			return
		}
		if !slices.Contains(keys, key) {
			panic("the field " + field.Name + " of the settings has the key `" + key + "` in its tag; known are " +
				strings.Join(keys, ", "))
		}
		rest = after[len(quoted):]
	}
}

// Name is the name of a field's setting: SolvedAtLeast is solved-at-least.
func Name(field string) string {
	var name strings.Builder
	for i, letter := range field {
		if unicode.IsUpper(letter) && i > 0 {
			name.WriteByte('-')
		}
		name.WriteRune(unicode.ToLower(letter))
	}
	return name.String()
}

// The default of a field. One that can't be read is a mistake in the author's file.
func byDefault(field reflect.StructField) any {
	text := field.Tag.Get("default")
	var value any
	var err error
	switch field.Type.Kind() {
	case reflect.Bool:
		value, err = strconv.ParseBool(text)
	case reflect.Int32, reflect.Uint32:
		var integer int64
		integer, err = strconv.ParseInt(text, 10, 32)
		value = int32(integer)
	case reflect.Float64:
		value, err = strconv.ParseFloat(text, 64)
	case reflect.String:
		value = text
	default:
		err = errors.New("a setting is bool, int32, uint32, float64 or string, not " + field.Type.String())
	}
	if err != nil {
		panic("the field " + field.Name + " of the settings, with the default `" + text + "`: " + err.Error())
	}
	return value
}

// Read gives the values in force. `given` has one for each name, or nil.
func Read[Settings any](given func(name string) any) (Settings, *Bad) {
	var settings Settings
	all := reflect.ValueOf(&settings).Elem()
	for _, field := range reflect.VisibleFields(all.Type()) {
		name := Name(field.Name)
		value := given(name)
		if value == nil {
			return settings, &Bad{name, "the host did not give it"}
		}
		if reason := assign(all.FieldByIndex(field.Index), field, value); reason != "" {
			return settings, &Bad{name, reason}
		}
	}
	return settings, nil
}

// Puts a value into a field, or says what it should have been.
func assign(to reflect.Value, field reflect.StructField, value any) string {
	kind := to.Kind()
	switch value := value.(type) {
	case bool:
		if kind == reflect.Bool {
			to.SetBool(value)
			return ""
		}
	case int32:
		if kind == reflect.Int32 || kind == reflect.Uint32 {
			if reason := outside(field, float64(value)); reason != "" {
				return reason
			}
		}
		if kind == reflect.Int32 {
			to.SetInt(int64(value))
			return ""
		}
		if kind == reflect.Uint32 && value >= 0 {
			to.SetUint(uint64(value))
			return ""
		}
		if kind == reflect.Uint32 {
			return strconv.Itoa(int(value)) + " is not " + expected[kind]
		}
	case float64:
		if kind == reflect.Float64 {
			to.SetFloat(value)
			return outside(field, value)
		}
	case string:
		if kind == reflect.String {
			to.SetString(value)
			return unknown(value, field.Tag.Get("choices"))
		}
	}
	return "expected " + expected[kind]
}

var expected = map[reflect.Kind]string{
	reflect.Bool:    "true or false",
	reflect.Int32:   "a whole number",
	reflect.Uint32:  "a whole number, 0 or more",
	reflect.Float64: "a number",
	reflect.String:  "text",
}

// What is wrong with a number outside of its field's bounds, if it has any. The words are those of the SDKs of other
// languages.
func outside(field reflect.StructField, value float64) string {
	low, hasLow := bound(field, "minimum")
	high, hasHigh := bound(field, "maximum")
	if (!hasLow || value >= low) && (!hasHigh || value <= high) {
		return ""
	}
	shown := func(number float64) string { return strconv.FormatFloat(number, 'f', -1, 64) }
	words := shown(value) + " is not a number"
	if field.Type.Kind() != reflect.Float64 {
		words = shown(value) + " is not a whole number"
	}
	switch {
	case hasLow && hasHigh:
		return words + " from " + shown(low) + " to " + shown(high)
	case hasLow:
		return words + ", " + shown(low) + " or more"
	}
	return words + ", " + shown(high) + " or less"
}

// A field's bound, if it has it. One that can't be read is a mistake in the author's file.
func bound(field reflect.StructField, name string) (float64, bool) {
	text, has := field.Tag.Lookup(name)
	if !has {
		return 0, false
	}
	number, err := strconv.ParseFloat(text, 64)
	if err != nil {
		panic("the field " + field.Name + " of the settings, with the " + name + " `" + text + "`: " + err.Error())
	}
	return number, true
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
