package kubernetes

import "testing"

// Of two subcommands with one name only the first would run.
func TestSubcommandsHaveTheirOwnNames(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range NewRootCommand().Commands() {
		if seen[c.Name()] {
			t.Errorf("there are two commands %s", c.Name())
		}
		seen[c.Name()] = true
	}
}
