// Package grader is what a Go author needs to write a grader of answers.
//
// A grader is a name, some settings, and one judgement:
//
//	package main
//
//	import (
//		"strings"
//
//		"allot/grader"
//	)
//
//	type settings struct {
//		Caseless bool `default:"false" summary:"Whether capital letters are the same as small ones."`
//	}
//
//	var contains = grader.Grader[settings]{
//		Name:    "contains",
//		Version: "0.1.0",
//		Summary: "right is what has the gold answer in it",
//		Grade:   grade,
//	}
//
//	func grade(set *settings, question *grader.Question) grader.Verdict {
//		return grader.Correct(strings.Contains(question.Answer, question.Gold[0]))
//	}
//
//	func init() { grader.Export(contains) }
//
//	func main() {}
//
// A grader is a pure function: a verdict rests on the settings and the question alone. Compiled for the machine at hand
// this is a plain function that tests call by way of Judge; compiled for Wasm it is a component of the contract
// rollout:reward@0.2.0. What each field of its types means is told where they are generated, in
// wit/rollout_reward_types.
package grader

import (
	"errors"

	types "allot/grader/wit/rollout_reward_types"
	"allot/settings"
)

// The contract's types.
type (
	Description = types.Description
	Part        = types.Part
	Question    = types.Question
	Verdict     = types.Verdict
)

// None is the settings of a grader that has none.
type None = struct{}

// Grader is one judgement, and what it needs to be told apart from others. Its settings are a struct whose fields a run
// may set by name: the field AtMostOff is the setting at-most-off. A field is bool, int32, uint32, float64 or string, and
// its default and summary stand in its tag.
type Grader[Settings any] struct {
	// Short and lower-case, as in a record: unit-tests.
	Name string
	// The grader's own version: 1.2.0.
	Version string
	// One line for people.
	Summary string
	// The parts of its rewards, by name.
	Parts []string

	// Begin checks settings against each other. A setting's own type is checked before this is called. May be nil.
	Begin func(set *Settings) error

	// Grade judges an answer.
	Grade func(set *Settings, question *Question) Verdict

	// GradeGroup takes the place of Grade where verdicts compare answers. It gets all answers of a group, which differ in
	// Answer alone, and gives a verdict for each, in their order.
	GradeGroup func(set *Settings, questions []Question) []Verdict
}

// Describe is the contract's describe of a grader.
func Describe[Settings any](grader Grader[Settings]) Description {
	compares := grader.GradeGroup != nil
	if compares == (grader.Grade != nil) {
		panic(grader.Name + " needs one of Grade and GradeGroup")
	}
	described := Description{
		Name:     grader.Name,
		Version:  grader.Version,
		Summary:  grader.Summary,
		Parts:    grader.Parts,
		Compares: compares,
	}
	for _, field := range settings.Of[Settings]() {
		setting := types.Setting{Name: field.Name, Default: value(field.Default), Summary: field.Summary}
		described.Settings = append(described.Settings, setting)
	}
	return described
}

// Begin gives the settings in force, once they are checked. `given` has a value for each name, or nil.
func Begin[Settings any](grader Grader[Settings], given func(name string) any) (*Settings, error) {
	set, bad := settings.Read[Settings](given)
	if bad != nil {
		return nil, BadSetting(bad.Name, bad.Reason)
	}
	if grader.Begin != nil {
		if err := grader.Begin(&set); err != nil {
			return nil, err
		}
	}
	return &set, nil
}

// Judge gives a verdict for tests: with the default settings, but for these by name.
func Judge[Settings any](grader Grader[Settings], question *Question, changes map[string]any) (Verdict, error) {
	verdicts, err := JudgeGroup(grader, []Question{*question}, changes)
	if err != nil {
		return Verdict{}, err
	}
	return verdicts[0], nil
}

// JudgeGroup gives the verdicts on a group for tests: with the default settings, but for these by name.
func JudgeGroup[Settings any](grader Grader[Settings], questions []Question, changes map[string]any) ([]Verdict, error) {
	values := map[string]any{}
	for _, field := range settings.Of[Settings]() {
		values[field.Name] = field.Default
	}
	for name, value := range changes {
		if values[name] == nil {
			panic(grader.Name + " has no setting " + name)
		}
		values[name] = value
	}
	set, err := Begin(grader, func(name string) any { return values[name] })
	if err != nil {
		return nil, err
	}
	return grade(grader, set, questions), nil
}

// The verdicts on answers, which are a group if the grader compares them.
func grade[Settings any](grader Grader[Settings], set *Settings, questions []Question) []Verdict {
	if grader.GradeGroup != nil {
		return grader.GradeGroup(set, questions)
	}
	verdicts := make([]Verdict, 0, len(questions))
	for i := range questions {
		verdicts = append(verdicts, grader.Grade(set, &questions[i]))
	}
	return verdicts
}

// A value as the contract has it.
func value(plain any) types.Value {
	switch plain := plain.(type) {
	case bool:
		return types.MakeValueFlag(plain)
	case int32:
		return types.MakeValueInteger(plain)
	case float64:
		return types.MakeValueNumber(plain)
	default:
		return types.MakeValueText(plain.(string))
	}
}

// An error that the contract has a kind for.
type refusal struct {
	kind types.Error
	text string
}

func (r refusal) Error() string { return r.text }

// BadSetting is the error for a setting that a grader can't work with.
func BadSetting(name, reason string) error {
	kind := types.MakeErrorSetting(types.BadSetting{Name: name, Reason: reason})
	return refusal{kind, "setting `" + name + "`: " + reason}
}

// The contract's form of any error.
func contract(err error) types.Error {
	var known refusal
	if errors.As(err, &known) {
		return known.kind
	}
	return types.MakeErrorOther(err.Error())
}
