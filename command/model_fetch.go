package command

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/faas-infer/faas-infer/model/source"
	"github.com/faas-infer/faas-infer/model/source/fetch"
	"github.com/faas-infer/faas-infer/model/source/origin"
)

// fetchModel brings the model of a URI into the user's cache, and returns its bundle's directory. secrets are the files of
// credentials by the names that functions' secrets have. A user may name any address and file of this machine.
func fetchModel(ctx context.Context, uri string, secrets map[string]string) (dir string, err error) {
	u, err := source.Parse(uri)
	if err != nil {
		return "", usage(fmt.Errorf("the model's URI %q: %w", uri, err))
	}
	values := map[string][]byte{}
	for name, file := range secrets {
		if !origin.SecretCounts(name) {
			return "", usage(fmt.Errorf("--secret %s: the name must be %s, %s or %s", name, origin.S3Secret, origin.TokenSecret, origin.RegistrySecret))
		}
		if values[name], err = os.ReadFile(file); err != nil {
			return "", fmt.Errorf("--secret %s: %w", name, err)
		}
	}
	with, err := origin.ReadCredentials(values)
	if err != nil {
		return "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	anywhere, err := origin.ParseSources([]string{"0.0.0.0/0", "::/0", "/"})
	if err != nil {
		return "", err
	}
	const maxBytes = 20 << 30
	c := fetch.Open(fetch.Options{Dir: filepath.Join(cache, "faas-infer", "models"), MaxBytes: maxBytes, Sources: anywhere})
	defer c.Close()
	e, err := c.Fetch(ctx, u, with, nil)
	if err != nil {
		return "", fmt.Errorf("the model %s: %w", u, err)
	}
	return e.Dir, nil
}
