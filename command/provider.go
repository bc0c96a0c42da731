package command

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// newProviderCommand returns "faas-infer provider".
func newProviderCommand() *cobra.Command {
	var f ProviderFlags
	c := &cobra.Command{
		Use:   "provider",
		Short: "Run the OpenFaaS provider on this machine, alone or for a gateway that runs elsewhere",
		Long: `provider serves functions, asynchronous requests and OpenFaaS's API, so you need no
gateway. If you have one, point its functions_provider_url (with its trailing slash) at the
provider, and give --behind-gateway.

It keeps its functions, namespaces and secrets over restarts. After a kill, the next
provider takes over the running instances. On SIGTERM, SIGINT or SIGHUP it finishes the
requests in flight and stops the instances; on a second SIGTERM or SIGINT it stops them at once.

--help shows the flags that people use most, --help-all shows all. They can be in a YAML file, too:
see "faas-infer config".`,
		Example: `  faas-infer bundle mnist --root bundles --image mnist:latest
  faas-infer provider --bundles bundles --listen 127.0.0.1:8080
  faas-infer provider --secret-mount-path /etc/faas-infer/secrets
  curl http://127.0.0.1:8080/healthz`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.Serve(cmd.Context(), machine{})
		},
	}
	registerProvider(&f, c.Flags())
	configurable(c, []string{"listen", "state", "bundles", "secret-mount-path", "tls", "access-keys", "cores", "gpus", "drain", "log-level"})
	completeProvider(c)
	return c
}

// registerProvider adds the flags of "provider".
func registerProvider(f *ProviderFlags, flags *pflag.FlagSet) {
	f.register(flags)
	f.RegisterTLS(flags)
	f.RegisterDoors(flags)
	f.acme.register(flags)
}

// Serve runs a provider on a platform until ctx ends.
func (f *ProviderFlags) Serve(ctx context.Context, platform Platform) error {
	s, err := f.start(ctx, platform)
	if err != nil {
		return err
	}
	s.log.Info().Str("address", s.address()).Str("state", f.state).Str("bundles", f.bundles).Msg("serving")
	select {
	case <-ctx.Done():
		return s.stop(func() {})
	case err := <-s.served:
		return errors.Join(fmt.Errorf("HTTP server: %w", err), s.stop(func() {}))
	}
}
