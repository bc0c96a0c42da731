package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/faas-infer/faas-infer/cluster/kubernetes/migrate"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/annotation"
)

// importFlags are the flags of "faas-infer-kubernetes import".
type importFlags struct {
	migrate.Choices
	kubeconfig   string
	namespaces   []string
	dryRun, undo bool
	patience     time.Duration
}

// NewImportCommand returns "faas-infer-kubernetes import".
func NewImportCommand() *cobra.Command {
	var f importFlags
	c := &cobra.Command{
		Use:   "import [FUNCTION…]",
		Short: "Take over the functions of faas-netes, or give them back",
		Long: `import reads the Deployments of faas-netes and the Function objects of openfaas.com/v1,
and creates a function of faas-infer for each. faas-netes' Deployment serves until the
new function's instances are ready. Then it is scaled to 0 and keeps the number of its
pods in the label ` + migrate.RetiredLabel + `. Nothing of faas-netes is deleted.

A function stays as it is if faas-infer has no field for something that it has, such as
a volume or a variable from a secret: it may become ready and then fail its requests.
--accept-losses moves it without that.

A provider of faas-infer must run. A second import continues the first one. --undo
scales the Deployments up again, waits for their pods and deletes what import created.`,
		Example: `  faas-infer-kubernetes import --dry-run
  faas-infer-kubernetes import --keep-running
  faas-infer-kubernetes import figlet nodeinfo --namespace team-a
  faas-infer-kubernetes import --undo --dry-run`,
		RunE: func(cmd *cobra.Command, names []string) error {
			f.Names = names
			return f.run(cmd)
		},
	}
	flags := c.Flags()
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig file (default $KUBECONFIG, or the pod's service account)")
	flags.StringSliceVarP(&f.namespaces, "namespace", "n", []string{provider.DefaultNamespace}, "namespaces of functions")
	flags.BoolVar(&f.dryRun, "dry-run", false, "only show what would be done and what cannot be carried over")
	flags.BoolVar(&f.undo, "undo", false, "undo earlier imports")
	flags.BoolVar(&f.KeepRunning, "keep-running", false, "do not scale faas-netes' Deployments to 0; a later import without this flag does")
	flags.BoolVar(&f.Overwrite, "overwrite", false, "replace functions that exist with another image; with --undo, give up changes made since the import")
	flags.BoolVar(&f.AcceptLosses, "accept-losses", false, "import also functions that lose something; --dry-run shows what")
	flags.DurationVar(&f.patience, "timeout", 5*time.Minute, "how long one function may take to become ready")
	return c
}

// run connects, shows the plan, and carries it out.
func (f *importFlags) run(cmd *cobra.Command) error {
	if f.patience <= 0 {
		return fmt.Errorf("--timeout %v: it must be more than 0, for example 5m", f.patience)
	}
	if f.undo && f.KeepRunning {
		return errors.New("--keep-running has no effect with --undo; leave one of them out")
	}
	if f.undo && f.AcceptLosses {
		return errors.New("--accept-losses has no effect with --undo; leave one of them out")
	}
	c, err := connect(f.kubeconfig)
	if err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	m := &migrate.Mover{Client: c.core, Dynamic: c.dynamic, Patience: f.patience, Report: func(s migrate.Step, err error) {
		if err != nil {
			fmt.Fprintf(out, "%s.%s: %v\n", s.Name, s.Namespace, err)
			return
		}
		fmt.Fprintf(out, "%s.%s: done\n", s.Name, s.Namespace)
	}}
	steps, err := f.plan(cmd.Context(), m)
	if err != nil {
		return err
	}
	if err := migrate.Table(out, steps); err != nil || f.dryRun || len(steps) == 0 {
		return err
	}
	if err := m.Allowed(cmd.Context(), f.namespaces); err != nil {
		return err
	}
	if failed := m.Run(cmd.Context(), steps); failed > 0 {
		return fmt.Errorf("%d of %d functions have not been moved; they are served as before. Fix what is said above and run the command again", failed, len(steps))
	}
	return nil
}

// plan looks at all namespaces.
func (f *importFlags) plan(ctx context.Context, m *migrate.Mover) (steps []migrate.Step, err error) {
	for _, namespace := range f.namespaces {
		state, err := m.Look(ctx, namespace)
		if err != nil {
			return nil, err
		}
		for i := range state.Origins {
			if o := &state.Origins[i]; o.Err == nil {
				_, o.Err = annotation.Parse(o.Spec.Deployment(o.Name, o.Namespace))
			}
		}
		if f.undo {
			steps = append(steps, migrate.PlanUndo(state, f.Choices)...)
		} else {
			steps = append(steps, migrate.Plan(state, f.Choices)...)
		}
	}
	if unknown := f.Unknown(steps); len(unknown) > 0 {
		what := "functions of faas-netes"
		if f.undo {
			what = "imported functions"
		}
		return nil, fmt.Errorf("namespace %s has no %s called %s", strings.Join(f.namespaces, ", "), what, strings.Join(unknown, ", "))
	}
	return steps, nil
}
