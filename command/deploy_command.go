package command

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// deployFlags are the flags of "deploy".
type deployFlags struct {
	*functionsClient
	stack       string
	annotations []string
	wait        bool
}

// newDeployCommand returns "faas-infer deploy".
func newDeployCommand() *cobra.Command {
	f := deployFlags{functionsClient: newFunctionsClient()}
	c := &cobra.Command{
		Use:   "deploy [NAME...]",
		Short: "Deploy the functions of a stack.yml, and wait until they serve",
		Long: `deploy deploys the functions of faas-cli's stack.yml at a running provider, or only those that you
name, as "faas-cli deploy" does. An update keeps the earlier revision until the new one can serve. With --wait,
deploy returns once the new revisions serve (see "faas-infer wait"), and says until then why not.

It calls the provider at --url, otherwise the file's gateway if that is not the default, ` + localProvider + `,
otherwise $OPENFAAS_URL. It builds nothing: make the images' bundles first, with "faas-infer bundle", or use
"faas-cli up".`,
		Example: `  faas-infer deploy
  faas-infer deploy -f my/stack.yml mnist --wait --timeout 2m
  faas-infer deploy --annotation com.openfaas.slo.latency=100ms`,
		ValidArgsFunction: f.completeFile,
		RunE: func(c *cobra.Command, names []string) error {
			return f.run(c.Context(), names, c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	flags := c.Flags()
	f.registerClient(flags)
	flags.StringVarP(&f.stack, "file", "f", "stack.yml", "`file` with the functions")
	flags.StringArrayVar(&f.annotations, "annotation", nil, "`KEY=VALUE` that replaces an annotation of all these functions; may be repeated")
	flags.BoolVar(&f.wait, "wait", false, "wait until the deployed revisions serve")
	flags.DurationVar(&f.timeout, "timeout", 5*time.Minute, "how long --wait waits for all functions")
	completeFlag(c, "annotation", completeAnnotation)
	return c
}

// run deploys the functions and waits for them if that was asked for.
func (f *deployFlags) run(ctx context.Context, names []string, out, say io.Writer) error {
	functions, gateway, err := readStack(f.stack)
	if err != nil {
		return err
	}
	if functions, err = chosen(functions, names, f.stack); err != nil {
		return err
	}
	for i := range functions {
		if err := functions[i].annotate(f.annotations); err != nil {
			return err
		}
	}
	f.gateway, f.file = gateway, f.stack
	base, err := f.base()
	if err != nil {
		return err
	}
	// The first call tells about the provider and the password.
	f.namespace = functions[0].Namespace
	if _, err := f.all(ctx); err != nil {
		return err
	}
	user, password, _, err := f.credentials(base)
	if err != nil {
		return err
	}
	client, err := openFaaS(base.String(), user, password)
	if err != nil {
		return err
	}
	if _, err := deploy(ctx, client, functions); err != nil {
		return err
	}
	for _, d := range functions {
		fmt.Fprintf(out, "Deployed %s: %s/function/%s\n", d.full(), strings.TrimSuffix(base.Redacted(), "/"), d.path())
	}
	if !f.wait {
		return nil
	}
	var all []string
	for _, d := range functions {
		all = append(all, d.full())
	}
	if err := f.await(ctx, all, forReady, f.timeout, say); err != nil {
		return err
	}
	for _, name := range all {
		s, err := f.rollout(ctx, name, nil)
		if err == nil && s.Rollout != nil { // Other providers of OpenFaaS have no such route.
			fmt.Fprintf(out, "Revision %d of %s gets its requests gradually: see faas-infer rollout status %s\n", s.Rollout.Revision, name, name)
		}
	}
	fmt.Fprintln(out, "All are ready.")
	return nil
}

// chosen returns the functions with these names, or all.
func chosen(functions []stackFunction, names []string, file string) ([]stackFunction, error) {
	if len(names) == 0 {
		return functions, nil
	}
	var out []stackFunction
	for _, name := range names {
		i := slices.IndexFunc(functions, func(f stackFunction) bool { return f.Service == name })
		if i < 0 {
			return nil, usage(fmt.Errorf("%s has no function %s%s", file, name, didYouMean(similar(name, services(functions)))))
		}
		out = append(out, functions[i])
	}
	return out, nil
}

func services(functions []stackFunction) (names []string) {
	for _, f := range functions {
		names = append(names, f.Service)
	}
	return names
}

// annotate replaces annotations, given as KEY=VALUE.
func (f *stackFunction) annotate(values []string) error {
	with := map[string]string{}
	if f.Annotations != nil {
		maps.Copy(with, *f.Annotations)
	}
	for _, text := range values {
		key, value, ok := strings.Cut(text, "=")
		if !ok || key == "" {
			return usage(fmt.Errorf("--annotation %q: it must be KEY=VALUE, such as com.openfaas.slo.latency=100ms", text))
		}
		with[key] = value
	}
	if len(with) > 0 {
		f.Annotations = &with
	}
	return nil
}

// completeFile completes names of functions of the file.
func (f *deployFlags) completeFile(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	functions, _, err := readStack(f.stack)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return services(functions), cobra.ShellCompDirectiveNoFileComp
}
