package command

import (
	"fmt"
	"io"
	"path/filepath"
)

// welcome prints the addresses and some commands to try. url is the provider's, or that of the
// stock gateway in front of it. It prints the password's file, not the password: a terminal's
// text ends up in logs.
func (f *upFlags) welcome(out io.Writer, s *runningProvider, url string, functions []stackFunction, user string) {
	provider, password := "http://"+s.address(), passwordFile(f.secrets)
	fmt.Fprintln(out)
	if f.gateway == stockGateway {
		fmt.Fprintf(out, "Gateway    %s        web interface %s/ui/\n", url, url)
	}
	fmt.Fprintf(out, `Provider   %s
Console    %s/ui/
Metrics    %s/metrics
User       %s, password in %s
Instances' logs are in %s

  bin/faas-infer status --url %s
`, provider, provider, provider, user, password, filepath.Join(f.state, "local", "logs"), provider)
	if f.stackFile != "" {
		fmt.Fprintf(out, "  bin/faas-infer deploy -f %s --url %s --wait\n", f.stackFile, provider)
	}
	for _, fn := range functions {
		if fn.slo() == 0 {
			fmt.Fprintf(out, "  curl -s %s/function/%s -d hello\n", url, fn.path())
			continue
		}
		fmt.Fprintf(out, `  curl -s %s/function/%s/v2/models/%s
  bin/faas-infer load --url %s/function/%s --rate 200 --duration 10s --poisson --slo 50ms
`, url, fn.path(), fn.Service, url, fn.path())
		break
	}
	fmt.Fprintf(out, "\nFor faas-cli:\n\n  faas-cli login -g %s -u %s --password-stdin < %s\n", url, user, password)
	fmt.Fprintln(out, "\nCtrl-C stops everything.")
}
