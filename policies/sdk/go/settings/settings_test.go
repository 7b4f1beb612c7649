package settings

import "testing"

func TestSettingsHaveTheNamesOfTheirFields(t *testing.T) {
	if name := Name("SolvedAtLeast"); name != "solved-at-least" {
		t.Fatal(name)
	}
}
