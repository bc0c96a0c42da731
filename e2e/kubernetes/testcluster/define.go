package testcluster

import (
	"context"
	"path"
	"strings"
)

// Define applies the resource definitions in a file and waits until they are
// [Cluster.Defined].
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

// Defined waits until kubectl can list the resources of an applied definition. The condition
// Established is not enough: the API server serves the kind a moment later. Nor can kubectl
// wait for that condition at once: it rejects a definition without conditions.
func (c *Cluster) Defined(ctx context.Context, resource string) error {
	return c.await(ctx, resource, func() error {
		_, err := c.Kubectl(ctx, "", "get", resource, "--all-namespaces")
		return err
	})
}
