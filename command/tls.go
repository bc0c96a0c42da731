package command

import (
	"fmt"
	"strings"

	"github.com/rs/zerolog"
	"github.com/spf13/pflag"

	"github.com/faas-infer/faas-infer/instance/mutual"
	"github.com/faas-infer/faas-infer/provider/peer"
)

// RegisterTLS adds the flag of a provider that speaks TLS. "up" has none: it serves this machine.
func (f *ProviderFlags) RegisterTLS(flags *pflag.FlagSet) {
	flags.StringVar(&f.tls, "tls", "", "directory with tls.crt, tls.key and ca.crt: requests need TLS then, except for health, /metrics and /api/v1/query; the files are read again when they change")
}

// identity opens the directory of --tls, nil without the flag.
func (f *ProviderFlags) identity(log zerolog.Logger) (*mutual.Identity, error) {
	if f.tls == "" {
		return nil, nil
	}
	i, err := mutual.Open(f.tls, mutual.ProviderName, log)
	if err != nil {
		return nil, fmt.Errorf("--tls %s: %w", f.tls, err)
	}
	return i, nil
}

// providerRules say what needs TLS at a provider with --tls. The open paths have nothing secret; the
// kubelet, Prometheus and the stock gateway, which asks it for counts, know no https for them.
// Replicas of the provider must show that they are.
var providerRules = mutual.Rules{
	Open: []string{"/healthz", "/readyz", "/startupz", "/livez", "/metrics", "/api/v1/query"},
	Callers: func(path string) []string {
		if strings.HasPrefix(path, peer.Prefix) {
			return []string{mutual.ProviderName}
		}
		return nil
	},
}
