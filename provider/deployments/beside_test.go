package deployments

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/faas-infer/faas-infer/cluster/kubernetes/v1alpha1"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/metrics"
)

// A function's objects have its name. Beside somebody else's Deployment of that name they have another,
// and that Deployment stays as it is.
func TestBeside(t *testing.T) {
	others := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "figlet", Namespace: "fns", Labels: map[string]string{"faas_function": "figlet"}}}
	for name, there := range map[string]bool{"figlet": false, "figlet-faas-infer": true} {
		synctest.Test(t, func(t *testing.T) {
			client := fake.NewClientset()
			if there {
				client = fake.NewClientset(others.DeepCopy())
			}
			owner := &v1alpha1.Function{ObjectMeta: metav1.ObjectMeta{Name: "figlet", Namespace: "fns", UID: "u"}}
			c, err := New(t.Context(), Options{Client: client, Functions: func(string) (*v1alpha1.Function, bool) { return owner, true },
				Metrics: metrics.New(prometheus.NewRegistry()), Logger: zerolog.Nop(), ColdWait: time.Second, QueueLimit: 1, Tick: time.Second})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			ran := make(chan struct{})
			go func() {
				defer close(ran)
				c.Run(ctx)
			}()
			if _, err := c.Deploy(t.Context(), manifestFunction(func(f *provider.Function) { f.Replicas = 1 })); err != nil {
				t.Fatal(err)
			}
			time.Sleep(5 * time.Second)
			synctest.Wait()
			d, err := client.AppsV1().Deployments("fns").Get(t.Context(), name, metav1.GetOptions{})
			if err != nil || len(d.OwnerReferences) != 1 {
				t.Errorf("%s: %+v, %v", name, d, err)
			}
			if _, err := client.CoreV1().Services("fns").Get(t.Context(), name, metav1.GetOptions{}); err != nil {
				t.Error(err)
			}
			if d, err := client.AppsV1().Deployments("fns").Get(t.Context(), "figlet", metav1.GetOptions{}); there && (err != nil || len(d.Labels) != 1 || len(d.OwnerReferences) > 0) {
				t.Errorf("the other Deployment is %+v, %v", d, err)
			}
			cancel()
			<-ran
			if err := c.Close(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
}
