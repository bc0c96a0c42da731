package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
)

// newUpCommand returns "faas-infer up".
func newUpCommand() *cobra.Command {
	var f upFlags
	c := &cobra.Command{
		Use:   "up",
		Short: "Run OpenFaaS on this machine and deploy stack.yml",
		Long: `up starts the provider, deploys the functions of stack.yml and runs until Ctrl-C. The
provider serves functions, asynchronous requests and OpenFaaS's API at --listen, where
faas-cli finds them. If an image names an architecture of "faas-infer model make" and has
no bundle yet, up makes the bundle. It deploys stack.yml at each start, and says where that undoes
a change or a removal made since the last start.

With --demo, up sends the functions an open-loop Poisson load, prints a table, and stops.

With --gateway stock, up also starts the stock OpenFaaS gateway in front of the provider,
which has a web interface. "make gateway" in a checkout of faas-infer builds it on this machine. It
is under the OpenFaaS Community Edition licence, which limits commercial use. It listens on ports
8080 and 8082, and the provider at 127.0.0.1:8081 unless --listen gives another address.

--help shows the flags that people use most, --help-all shows all. They can be in a YAML file, too:
see "faas-infer config".`,
		Example: `  faas-infer up --demo --rate 400,800 --duration 20s
  faas-infer up --stack my/stack.yml --policy infless
  faas-infer up --gateway stock
  faas-infer up --config faas-infer.yaml`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd.Context(), cmd.OutOrStdout())
		},
	}
	f.registerUp(c.Flags())
	configurable(c, []string{"stack", "demo", "rate", "listen", "gateway", "state", "cores", "gpus", "access-keys", "log-level"})
	completeProvider(c)
	completeFlag(c, "gateway", cobra.FixedCompletions([]string{ownGateway, stockGateway}, cobra.ShellCompDirectiveNoFileComp))
	return c
}

// functions returns the functions of the stack file.
func (f *upFlags) functions() ([]stackFunction, error) {
	if f.stackFile == "" {
		return nil, nil
	}
	functions, _, err := readStack(f.stackFile) // The gateway of this command is its own.
	return functions, err
}

// ready completes the flags and makes the bundles and the credentials before the provider
// starts.
func (f *upFlags) ready() (functions []stackFunction, user, password string, err error) {
	switch f.gateway {
	case ownGateway:
	case stockGateway:
		f.behindStock()
	default:
		return nil, "", "", usage(fmt.Errorf("--gateway %q: it must be %s or %s", f.gateway, ownGateway, stockGateway))
	}
	if err := f.complete(); err != nil {
		return nil, "", "", usage(err)
	}
	if err := os.MkdirAll(f.bundles, 0o755); err != nil {
		return nil, "", "", fmt.Errorf("--bundles: %w; give a directory that this user can write, with --state for all", err)
	}
	if functions, err = f.functions(); err != nil {
		return nil, "", "", err
	}
	if _, err := f.rate(0, len(functions)); f.demo && err != nil {
		return nil, "", "", err
	}
	if err := makeBundles(functions, f.bundles, os.Stderr); err != nil {
		return nil, "", "", err
	}
	if f.secrets == "" {
		f.secrets = filepath.Join(f.state, "secrets")
	}
	if user, password, err = basicAuth(f.secrets); err != nil {
		return nil, "", "", err
	}
	if f.payloadSecret == "" {
		f.payloadSecret, err = payloadSecret(f.secrets)
	}
	return functions, user, password, err
}

func (f *upFlags) run(ctx context.Context, out io.Writer) (err error) {
	if f.demo && f.logLevel == "info" {
		f.logLevel = "warn"
	}
	functions, user, password, err := f.ready()
	if err != nil {
		return err
	}
	s, err := f.start(ctx, machine{})
	if err != nil {
		return err
	}
	var g *gateway
	defer func() {
		// The gateway carries the answers of requests in flight, so it stops after
		// them.
		err = errors.Join(err, s.stop(func() {
			if g != nil {
				g.stop()
			}
		}))
	}()
	url, gone := "http://"+s.address(), make(<-chan struct{})
	if f.gateway == stockGateway {
		g, err = startGateway(ctx, gatewayPlan{provider: s.address(), nats: s.natsAddress(),
			secrets: f.secrets, logs: f.state})
		if err != nil {
			return err
		}
		url, gone = gatewayURL, g.Exited()
		f.own.Add(g.Process.Pid)
	}
	client, err := openFaaS(url, user, password)
	if err != nil {
		return err
	}
	added, err := f.deployStack(ctx, s, client, functions, out)
	if f.demo { // The demo restores the state, even if it is interrupted.
		defer func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), demoRemoval)
			defer cancel()
			err = errors.Join(err, remove(ctx, client, added))
		}()
	}
	if err != nil {
		return err
	}
	if err := s.awaitMeasured(ctx, functions); err != nil {
		return err
	}
	if f.demo {
		return f.drive(ctx, s, url, functions, out)
	}
	f.welcome(out, s, url, functions, user)
	select {
	case <-ctx.Done():
		fmt.Fprintln(out, "stopping")
		return nil
	case <-gone:
		return fmt.Errorf("the gateway exited: %v", g.ProcessState)
	case err := <-s.served:
		return fmt.Errorf("HTTP server: %w", err)
	}
}
