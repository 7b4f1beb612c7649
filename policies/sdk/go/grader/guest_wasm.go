package grader

import (
	exports "allot/grader/wit/export_rollout_reward_grader"
	log "allot/grader/wit/rollout_reward_log"
	types "allot/grader/wit/rollout_reward_types"
	_ "allot/grader/wit/wit_exports"
	wit "allot/wit/types"
)

// Where the package is compiled for Wasm.

func write(level Level, line string) { log.Write(log.Level(level), line) }

// Export makes a grader the component's. Call it in `init`. It does nothing where the package is
// compiled for the machine at hand.
func Export[Settings any](grader Grader[Settings]) {
	var set *Settings
	exports.Describe = func() Description { return Describe(grader) }
	exports.Begin = func(settings []wit.Tuple2[string, types.Value]) wit.Result[wit.Unit, types.Error] {
		begun, err := Begin(grader, func(name string) any { return given(settings, name) })
		if err != nil {
			return wit.Err[wit.Unit](contract(err))
		}
		set = begun
		return wit.Ok[wit.Unit, types.Error](wit.Unit{})
	}
	exports.Grade = func(questions []Question) []Verdict { return grade(grader, set, questions) }
}

// The value of a setting, nil where there is none.
func given(settings []wit.Tuple2[string, types.Value], name string) any {
	for _, setting := range settings {
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
