package testcluster

import (
	"context"
	"path"
	"strings"
)

// Define applies the resource definitions in a file and returns when they are [Cluster.Defined].
func (c *Cluster) Define(ctx context.Context, file string) error {
	names, err := c.Kubectl(ctx, "", "apply", "--server-side", "-f", file, "-o", "name")
	if err != nil {
		return err
	}
	for name := range strings.FieldsSeq(names) {
		if err := c.Defined(ctx, path.Base(name)); err != nil {
			return err
		}
	}
	return nil
}

// Defined returns when kubectl lists what a resource definition that was applied defines.
// That it is established is not enough: the API server learns a moment later which kinds
// there are. And it cannot be waited for at once: kubectl takes a definition that has no
// condition yet for damaged.
func (c *Cluster) Defined(ctx context.Context, resource string) error {
	return c.await(ctx, resource, func() error {
		_, err := c.Kubectl(ctx, "", "get", resource, "--all-namespaces")
		return err
	})
}
