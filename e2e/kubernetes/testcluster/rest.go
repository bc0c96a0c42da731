package testcluster

import (
	"context"
	"errors"
)

// startRest starts what only some tests need.
func (c *Cluster) startRest(context.Context) error {
	if c.options.Node || c.options.Registry {
		return errors.New("a real node and a registry are not part of this cluster")
	}
	return nil
}
