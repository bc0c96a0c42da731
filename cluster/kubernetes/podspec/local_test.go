package podspec

import (
	"testing"

	"github.com/openfaas/faas-provider/types"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/faas-infer/faas-infer/gpu"
)

var bounds = Local{StorageRequest: resource.MustParse("64Mi"), StorageLimit: resource.MustParse("2Gi"), TmpSize: resource.MustParse("1Gi"), UserNamespaces: true}

func amount(list corev1.ResourceList) string {
	q, ok := list[corev1.ResourceEphemeralStorage]
	if !ok {
		return "none"
	}
	return q.String()
}

// Pods of models and of ordinary functions have the bounds, and none without them.
func TestLocal(t *testing.T) {
	for _, of := range []struct {
		name string
		pod  func(l Local) corev1.PodSpec
	}{
		{"model", func(l Local) corev1.PodSpec {
			p := plan()
			p.Local = l
			pod, err := Model(p)
			if err != nil {
				t.Fatal(err)
			}
			return pod.Spec
		}},
		{"ordinary", func(l Local) corev1.PodSpec {
			spec, err := Ordinary(types.FunctionDeployment{Service: "echo", Image: "echo:1", ReadOnlyRootFilesystem: true}, Settings{Local: l, User: DefaultUser}, corev1.PullAlways)
			if err != nil {
				t.Fatal(err)
			}
			return spec
		}},
	} {
		t.Run(of.name, func(t *testing.T) {
			size := func(spec corev1.PodSpec) string {
				for _, v := range spec.Volumes {
					if v.Name == tmpVolume {
						if v.EmptyDir.SizeLimit == nil {
							return "none"
						}
						return v.EmptyDir.SizeLimit.String()
					}
				}
				return "no volume"
			}
			for _, c := range []struct {
				local                Local
				request, limit, size string
				users                bool
			}{
				{bounds, "64Mi", "2Gi", "1Gi", true},
				{Local{}, "none", "none", "none", false},
				// Without a request of its own, a limit would become the request.
				{Local{StorageLimit: bounds.StorageLimit}, "0", "2Gi", "none", false},
				{Local{StorageRequest: bounds.StorageRequest}, "64Mi", "none", "none", false},
			} {
				spec := of.pod(c.local)
				r := spec.Containers[0].Resources
				if got := amount(r.Requests); got != c.request {
					t.Errorf("%+v: it requests %s", c.local, got)
				}
				if got := amount(r.Limits); got != c.limit {
					t.Errorf("%+v: its limit is %s", c.local, got)
				}
				if got := size(spec); got != c.size {
					t.Errorf("%+v: the size of /tmp is %s", c.local, got)
				}
				if users := spec.HostUsers != nil && !*spec.HostUsers; users != c.users {
					t.Errorf("%+v: a user namespace: %v", c.local, users)
				}
			}
		})
	}
}

// A profile's own amounts stay, and a pod that mounts directories of the node has no user namespace.
func TestLocalYields(t *testing.T) {
	own := corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceEphemeralStorage: resource.MustParse("10Gi")}}
	spec, err := Ordinary(types.FunctionDeployment{Service: "echo", Image: "echo:1"}, Settings{Local: bounds, User: DefaultUser, Profiles: []Profile{{Resources: &own}}}, corev1.PullAlways)
	if err != nil {
		t.Fatal(err)
	}
	if got := amount(spec.Containers[0].Resources.Limits); got != "10Gi" {
		t.Errorf("its limit is %s", got)
	}
	p := plan()
	p.Local, p.Share = bounds, &gpu.Share{Device: "GPU-1"}
	pod, err := Model(p)
	if err != nil {
		t.Fatal(err)
	}
	if pod.Spec.HostUsers != nil {
		t.Error("a pod with a share of a GPU has a user namespace")
	}
}

// An instance is not killed while it loads its model, nor by a question that its engine would
// have to answer, and not before a minute without an answer.
func TestLiveness(t *testing.T) {
	pod, err := Model(plan())
	if err != nil {
		t.Fatal(err)
	}
	p := pod.Spec.Containers[0].LivenessProbe
	if p == nil || p.HTTPGet.Path == ReadyPath || p.InitialDelaySeconds < AliveAfter || (p.FailureThreshold-1)*p.PeriodSeconds+p.TimeoutSeconds < 50 || p.TimeoutSeconds < 10 {
		t.Errorf("its liveness probe is %+v", p)
	}
}
