package settings

import "testing"

type bounded struct {
	Pilot uint32  `default:"8" minimum:"2" maximum:"64"`
	Few   int32   `default:"8" maximum:"64"`
	Many  uint32  `default:"8" minimum:"2"`
	Share float64 `default:"0.5" minimum:"0" maximum:"1"`
}

func TestANumberOutsideOfItsBoundsIsRefused(t *testing.T) {
	given := func(changed string, value any) *Bad {
		_, bad := Read[bounded](func(name string) any {
			if name == changed {
				return value
			}
			return map[string]any{"pilot": int32(8), "few": int32(8), "many": int32(8), "share": 0.5}[name]
		})
		return bad
	}
	for _, wrong := range []struct {
		name   string
		value  any
		reason string
	}{
		{"pilot", int32(65), "65 is not a whole number from 2 to 64"},
		{"pilot", int32(-1), "-1 is not a whole number from 2 to 64"},
		{"few", int32(65), "65 is not a whole number, 64 or less"},
		{"many", int32(-1), "-1 is not a whole number, 2 or more"},
		{"share", 1.25, "1.25 is not a number from 0 to 1"},
	} {
		if bad := given(wrong.name, wrong.value); bad == nil || *bad != (Bad{wrong.name, wrong.reason}) {
			t.Fatal(wrong, bad)
		}
	}
	for name, value := range map[string]any{"pilot": int32(64), "few": int32(-9), "many": int32(2), "share": 1.0} {
		if bad := given(name, value); bad != nil {
			t.Fatal(bad)
		}
	}
}

func TestSettingsHaveTheNamesOfTheirFields(t *testing.T) {
	if name := Name("SolvedAtLeast"); name != "solved-at-least" {
		t.Fatal(name)
	}
}

type misspelt struct {
	Pilot uint32 `default:"8" min:"2"`
}

func TestAnUnknownKeyOfATagIsRefused(t *testing.T) {
	defer func() {
		want := "the field Pilot of the settings has the key `min` in its tag; known are " +
			"default, summary, minimum, maximum, choices"
		if said := recover(); said != want {
			t.Fatal(said)
		}
	}()
	Of[misspelt]()
}
