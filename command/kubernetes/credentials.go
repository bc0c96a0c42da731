package kubernetes

import (
	"errors"
	"fmt"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/rs/zerolog"
	"github.com/spf13/pflag"

	"github.com/faas-infer/faas-infer/model/bundle/image"
)

// credentialFlags are the flags of the provider's own credentials for registries. They have the
// kubelet's names, and take the kubelet's file.
type credentialFlags struct{ config, programs string }

func (f *credentialFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.config, "image-credential-provider-config", "", "a CredentialProviderConfig of the kubelet: plugins that log in to clouds' registries, for images that no pull secret covers")
	flags.StringVar(&f.programs, "image-credential-provider-bin-dir", "", "directory with these plugins")
}

// keychain returns the provider's own credentials for registries: the plugins', then those of Docker's
// config, with its credential helpers.
func (f *credentialFlags) keychain(log zerolog.Logger) (authn.Keychain, error) {
	if (f.config == "") != (f.programs == "") {
		return nil, errors.New("--image-credential-provider-config and --image-credential-provider-bin-dir belong together: give both or none")
	}
	if f.config == "" {
		return authn.DefaultKeychain, nil
	}
	plugins, err := image.OpenPlugins(f.config, f.programs, log)
	if err != nil {
		return nil, fmt.Errorf("--image-credential-provider-config: %w", err)
	}
	return authn.NewMultiKeychain(plugins, authn.DefaultKeychain), nil
}
