package guide

import (
	"slices"
	"testing"

	"github.com/spf13/cobra"
)

// Calls of other programs and prose are none of a program's calls.
func TestWrongCalls(t *testing.T) {
	program := func() *cobra.Command {
		root, sub := &cobra.Command{Use: "faas-infer-lab"}, &cobra.Command{Use: "tune"}
		sub.Flags().Bool("slo", false, "")
		root.AddCommand(sub)
		return root
	}
	got := WrongCalls("A `faas-infer-lab tune --none`.\n```sh\nbin/faas-infer-lab tune \\\n  --slo\nbin/faas-infer-lab nothing\nfaas-infer tune --other\n```\nfaas-infer-lab is a program.", program)
	want := []string{"no such command: bin/faas-infer-lab nothing", "faas-infer-lab tune has no flag --none: faas-infer-lab tune --none"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
