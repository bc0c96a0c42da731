package testcluster

import (
	"context"
	"path"
	"strings"
)

// Define applies the resource definitions in a file and returns when kubectl lists what
// they define. That a definition is established is not enough: the API server learns a
// moment later which kinds there are. And it cannot be waited for at once: kubectl takes
// a definition that has no condition yet for damaged.
func (c *Cluster) Define(ctx context.Context, file string) error {
	names, err := c.Kubectl(ctx, "", "apply", "--server-side", "-f", file, "-o", "name")
	if err != nil {
		return err
	}
	for name := range strings.FieldsSeq(names) {
		resource := path.Base(name)
		if err := c.await(ctx, resource, func() error {
			_, err := c.Kubectl(ctx, "", "get", resource, "--all-namespaces")
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}
