package allot

import (
	"allot/settings"
	types "allot/wit/rollout_allocation_types"
)

// A policy's settings are a struct whose fields a run may set by name:
//
//	type settings struct {
//		Pilot         uint32  `default:"8" minimum:"1" maximum:"64" summary:"Rollouts to try each prompt with."`
//		SolvedAtLeast float64 `default:"0.125" summary:"Prompts solved less often are passed over."`
//		By            string  `default:"size" choices:"size,age" summary:"What to sort by."`
//	}
//
// The names are pilot, solved-at-least and by. A field is bool, int32, uint32, float64 or string. A number may have a
// minimum, a maximum or both.

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
	var described []Setting
	for _, field := range settings.Of[Settings]() {
		described = append(described, Setting{Name: field.Name, Default: value(field.Default), Summary: field.Summary})
	}
	return described
}

// The values in force in a run.
func read[Settings any](run *Run) (Settings, error) {
	set, bad := settings.Read[Settings](func(name string) any { return given(run, name) })
	if bad != nil {
		return set, BadSetting(bad.Name, bad.Reason)
	}
	return set, nil
}

// A value as the contract has it.
func value(plain any) Value {
	switch plain := plain.(type) {
	case bool:
		return Flag(plain)
	case int32:
		return Integer(plain)
	case float64:
		return Number(plain)
	default:
		return Text(plain.(string))
	}
}

// A run's value of a setting, nil where it has none.
func given(run *Run, name string) any {
	for _, setting := range run.Settings {
		if setting.F0 != name {
			continue
		}
		switch value := setting.F1; value.Tag() {
		case types.ValueFlag:
			return value.Flag()
		case types.ValueInteger:
			return value.Integer()
		case types.ValueNumber:
			return value.Number()
		default:
			return value.Text()
		}
	}
	return nil
}
