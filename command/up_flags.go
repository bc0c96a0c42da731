package command

import (
	"time"

	"github.com/spf13/pflag"
)

// upFlags are the flags of "up".
type upFlags struct {
	ProviderFlags
	stackFile string
	// gateway is [ownGateway] or [stockGateway].
	gateway  string
	demo     bool
	rates    []float64
	duration time.Duration
	json     bool
}

// registerUp adds the flags of "up".
func (f *upFlags) registerUp(flags *pflag.FlagSet) {
	f.register(flags)
	flags.Lookup("secret-mount-path").Usage = "directory with basic-auth-user and basic-auth-password; up makes those that are missing (default STATE/secrets)"
	flags.Lookup("payload-secret").Usage = "file with the secret that signs builds of faas-cli's --remote-builder (default payload-secret in the directory of --secret-mount-path; up makes it if it is missing)"
	flags.StringVar(&f.stackFile, "stack", "stack.yml", `functions to deploy at each start, which undoes other changes to them; "" for none`)
	flags.StringVar(&f.gateway, "gateway", ownGateway, "who serves OpenFaaS's API: own, the provider, or stock, the OpenFaaS gateway in front of it")
	flags.BoolVar(&f.demo, "demo", false, "send load, print a table and stop")
	flags.Float64SliceVar(&f.rates, "rate", []float64{400}, "requests per second of --demo: one rate for all functions, or one for each in order of name")
	flags.DurationVar(&f.duration, "duration", 20*time.Second, "length of --demo's load")
	flags.BoolVar(&f.json, "json", false, "print --demo's result as one JSON object")
}
