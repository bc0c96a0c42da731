package command

import (
	"os"
	"testing"

	"github.com/faas-infer/faas-infer/e2e/guide"
)

// The flags and subcommands of faas-infer-lab that the documents name exist.
func TestFlagsInDocuments(t *testing.T) {
	names, err := guide.Documents("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, wrong := range guide.WrongCalls(string(text), NewRootCommand) {
			t.Errorf("%s: %s", name, wrong)
		}
	}
}
