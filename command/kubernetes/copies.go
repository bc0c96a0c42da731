package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/podspec"
	"github.com/faas-infer/faas-infer/instance/copies"
	"github.com/faas-infer/faas-infer/instance/engines"
)

// copiesClaim is the PersistentVolumeClaim with a node's copies, in each namespace that has them.
const copiesClaim = "faas-infer-copies"

// headTimeout is how long a sender of models may take for a request's head.
const headTimeout = 10 * time.Second

// copiesClaim returns the claim for an instance: of a complete ONNX model, in a namespace of --copies.
func (f *providerFlags) copiesClaim(spec cluster.InstanceSpec) string {
	_, namespace, err := podspec.SplitName(spec.Function)
	file := fileOf(spec)
	if err != nil || spec.Kind != cluster.Model || spec.Set != "" || engines.IsManifest(file) || !f.copied(namespace) {
		return ""
	}
	return copiesClaim
}

// copied reports whether the instances of a namespace share copies.
func (f *providerFlags) copied(namespace string) bool { return slices.Contains(f.copies, namespace) }

// NewCopiesCommand returns "faas-infer-kubernetes copies".
func NewCopiesCommand() *cobra.Command {
	t := &copies.Tidier{Root: "/var/lib/faas-infer/copies"}
	every, size, listen, key := time.Minute, "", "", ""
	c := &cobra.Command{
		Use:   "copies NAMESPACE…",
		Short: "Keep this node's prepared copies of models",
		Long: `copies runs on every node, as a DaemonSet. The instances of a model on a node share one
prepared copy of it, which they write into a directory of their function. copies makes the
directories of namespaces, removes the copies of functions that no instance has used for a
while, and bounds the size of all. It takes models that functions name by URIs from the
provider, which sends them before instances start here, and verifies them. It asks no one
for anything and needs no right in the cluster.`,
		Example: "  faas-infer-kubernetes copies --directory /var/lib/faas-infer/copies --size 20Gi openfaas-fn",
		Args: func(_ *cobra.Command, namespaces []string) error {
			if len(namespaces) == 0 {
				return errors.New("no namespace is given: name those whose functions have copies, for example openfaas-fn")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, namespaces []string) error {
			limit, err := resource.ParseQuantity(size)
			if err != nil || limit.Sign() <= 0 {
				return fmt.Errorf("--size %q: it must be an amount of bytes, such as 20Gi", size)
			}
			if every <= 0 || t.Unused <= 0 {
				return errors.New("--every and --unused must be more than 0, for example 1m and 1h")
			}
			if !filepath.IsAbs(t.Root) {
				return fmt.Errorf("--directory is %q: it must be an absolute path", t.Root)
			}
			if t.KeepFree < 0 || t.KeepFree > 99 {
				return fmt.Errorf("--keep-free is %d: it must be a percentage from 0 to 99", t.KeepFree)
			}
			for _, namespace := range namespaces {
				if len(validation.IsDNS1123Label(namespace)) > 0 {
					return fmt.Errorf("namespace %q: it must be the name of a Kubernetes namespace", namespace)
				}
			}
			t.Namespaces, t.Size = namespaces, limit.Value()
			log := zerolog.New(cmd.ErrOrStderr()).With().Timestamp().Logger()
			return keepCopies(cmd.Context(), t, every, listen, key, log)
		},
	}
	flags := c.Flags()
	flags.StringVar(&t.Root, "directory", t.Root, "the node's directory of copies")
	flags.StringVar(&size, "size", "20Gi", "maximum size of all copies; beyond it, those without instances are removed, least recently used first, then the largest")
	flags.DurationVar(&t.Unused, "unused", time.Hour, "how long a function's copies stay after its last instance on the node")
	flags.IntVar(&t.KeepFree, "keep-free", 10, "percentage of the disk that stays free: a model that would take of it is not taken")
	flags.StringVar(&listen, "listen", "", "address at which the provider sends models, such as :8080 (default none: instances get them themselves)")
	flags.StringVar(&key, "key", "", "file with the key that the provider must show to send models (provider: --copies-key); a file that does not exist is no key")
	flags.DurationVar(&every, "every", every, "how often to look")
	return c
}

// keepCopies keeps the node's copies, and takes models at an address if it is not "", until ctx ends. Senders show the key
// in a file, if there is one.
func keepCopies(ctx context.Context, t *copies.Tidier, every time.Duration, listen, key string, log zerolog.Logger) error {
	if listen == "" {
		tidyCopies(ctx, t, every, log)
		return nil
	}
	has, err := copies.HasKey(key)
	if err != nil {
		return fmt.Errorf("--key: %w", err)
	}
	if !has {
		log.Warn().Msg("--key names no file with a key: this node takes models from everybody who reaches its agent")
	}
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return fmt.Errorf("--listen %s: %w", listen, err)
	}
	models := &copies.Models{Tidier: t, Log: log, Context: ctx, KeyFile: key}
	server := &http.Server{Handler: models, ReadHeaderTimeout: headTimeout, IdleTimeout: headTimeout}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	tidyCopies(ctx, t, every, log)
	err = server.Close() // The provider sends the rest to the next agent.
	<-ended
	return err
}

// tidyCopies looks at once and every period until ctx ends, and logs what it removes.
func tidyCopies(ctx context.Context, t *copies.Tidier, every time.Duration, log zerolog.Logger) {
	tick := time.Tick(every)
	for {
		removed, err := t.Look(time.Now())
		if err != nil {
			log.Error().Err(err).Str("directory", t.Root).Msg("cannot look after all copies")
		}
		for _, r := range removed {
			log.Info().Str("copy", r.Name).Int64("bytes", r.Bytes).Str("why", r.Why).Msg("removed a copy")
		}
		select {
		case <-ctx.Done():
			return
		case <-tick:
		}
	}
}
