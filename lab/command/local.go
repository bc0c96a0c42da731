package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/instance/onnxruntime"
	"github.com/faas-infer/faas-infer/lab/fidelity"
	"github.com/faas-infer/faas-infer/lab/rig"
)

// againstLocal is the only value of --against.
const againstLocal = "local"

// againstFlags are the flags that may be combined with --against.
var againstFlags = []string{"against", "json", "seed", "duration", "help"}

// checkAgainst refuses an unknown value of --against, and arguments and flags that cannot
// be combined with it.
func checkAgainst(against string, flags *pflag.FlagSet, args []string) error {
	if against != againstLocal {
		return fmt.Errorf("--against %q: it must be %s, a provider on this machine", against, againstLocal)
	}
	if len(args) > 0 {
		return fmt.Errorf("--against %s takes no scenario: its functions and loads are fixed", againstLocal)
	}
	var err error
	flags.Visit(func(f *pflag.Flag) {
		if !slices.Contains(againstFlags, f.Name) {
			err = errors.Join(err, fmt.Errorf("--%s cannot be combined with --against %s", f.Name, againstLocal))
		}
	})
	return err
}

// compare compares the simulator with a provider on this machine and prints the result.
// Without --duration and --seed, those of fidelity.Default apply.
func (o *simulateOptions) compare(ctx context.Context, out io.Writer) error {
	program, err := rig.FindProgram()
	if err != nil {
		return err
	}
	core, err := rig.PinCores()
	if err != nil {
		return fmt.Errorf("--against %s: %w", againstLocal, err)
	}
	options := fidelity.Default()
	options.Rig, options.Engine = fidelity.RigOptions{Self: program, Core: core}, onnxruntime.Name()
	options.Progress, options.Log = report.ProgressBar(os.Stderr, "comparing"), os.Stderr
	if term.IsTerminal(int(os.Stderr.Fd())) {
		options.Log = io.Discard // The bar tells enough.
	}
	if o.duration > 0 {
		options.Duration, options.Longest = o.duration, o.duration
	}
	if o.seedGiven() {
		options.Seed = o.seed
	}
	pairs, err := fidelity.Run(ctx, options)
	if err != nil {
		return err
	}
	r := report.New("simulate --against "+againstLocal, time.Now())
	r.Results = fidelity.Results(pairs)
	if o.json {
		return r.JSON(out)
	}
	fmt.Fprintf(out, "%s\nseed %d; %s, commit %s\n\n", r.Command, options.Seed, r.Machine, r.Commit)
	return fidelity.Table(pairs).Print(out)
}
