package objects

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"k8s.io/client-go/kubernetes"

	"github.com/faas-infer/faas-infer/provider/objects"
)

// openAs opens the functions as a user, "" for the administrator, and closes them.
func openAs(ctx context.Context, user string) error {
	config := cluster.Config()
	config.Impersonate.UserName = user
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	o, err := objects.Open(ctx, ctx, objects.Options{Config: config, Client: client, Logger: zerolog.Nop()})
	if err != nil {
		return err
	}
	cancel()
	o.Close()
	return nil
}

// An obstacle to the provider's start is reported at once, with the fix.
func TestOpenSaysWhatIsMissing(t *testing.T) {
	if bare == nil || !strings.Contains(bare.Error(), "kubectl apply -f yaml/crd.yaml") {
		t.Errorf("without the resource: %v", bare)
	}
	began := time.Now()
	if err := openAs(t.Context(), "nobody"); err == nil || !strings.Contains(err.Error(), `cannot list resource "functions" in API group "faas-infer.dev"`) {
		t.Errorf("without rights: %v", err)
	}
	config := cluster.Config()
	config.Impersonate.UserName = "nobody"
	if _, err := objects.OpenHistoryStore(t.Context(), clientOf(t, config), "openfaas", nil); err == nil || !strings.Contains(err.Error(), `cannot list resource "configmaps"`) {
		t.Errorf("without rights: %v", err)
	}
	// Not only when opening is given up.
	if took := time.Since(began); took > patience/2 {
		t.Errorf("it took %v to say so", took)
	}
}
