package guide

import (
	"slices"
	"testing"

	"github.com/spf13/cobra"
)

// Calls of other programs and prose are none of a program's calls.
func TestWrongCalls(t *testing.T) {
	program := func() *cobra.Command {
		root, sub := &cobra.Command{Use: "faas-infer-lab"}, &cobra.Command{Use: "simulate"}
		sub.Flags().Bool("slo", false, "")
		root.AddCommand(sub)
		return root
	}
	got := WrongCalls("A `faas-infer-lab simulate --none`.\n```sh\nbin/faas-infer-lab simulate \\\n  --slo\nbin/faas-infer-lab nothing\nfaas-infer simulate --other\n```\nfaas-infer-lab is a program.", program)
	want := []string{"no such command: bin/faas-infer-lab nothing", "faas-infer-lab simulate has no flag --none: faas-infer-lab simulate --none"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
