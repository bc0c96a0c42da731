package podspec

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openfaas/faas-provider/types"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

func deployment(edit ...func(*types.FunctionDeployment)) types.FunctionDeployment {
	d := types.FunctionDeployment{Service: "figlet", Namespace: "openfaas-fn", Image: "registry.example/figlet:1",
		Labels: &map[string]string{}, Annotations: &map[string]string{}}
	for _, e := range edit {
		e(&d)
	}
	return d
}

func annotated(pairs ...string) func(*types.FunctionDeployment) {
	return func(d *types.FunctionDeployment) {
		for i := 0; i < len(pairs); i += 2 {
			(*d.Annotations)[pairs[i]] = pairs[i+1]
		}
	}
}

func ordinary(t *testing.T, d types.FunctionDeployment, s Settings) corev1.PodSpec {
	t.Helper()
	spec, err := Ordinary(d, s, corev1.PullAlways)
	if err != nil {
		t.Fatal(err)
	}
	return spec
}

// Every pod satisfies the restricted Pod Security Standard.
func TestOrdinaryIsRestricted(t *testing.T) {
	spec := ordinary(t, deployment(), Settings{User: DefaultUser})
	c, pod := spec.Containers[0], spec.SecurityContext
	if c.Name != "figlet" || c.Image != "registry.example/figlet:1" || c.ImagePullPolicy != corev1.PullAlways || c.Ports[0].ContainerPort != 8080 {
		t.Errorf("container %+v", c)
	}
	if !*pod.RunAsNonRoot || *pod.RunAsUser != 12000 || pod.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		t.Errorf("pod security context %+v", pod)
	}
	own := c.SecurityContext
	if *own.AllowPrivilegeEscalation || *own.ReadOnlyRootFilesystem || len(own.Capabilities.Drop) != 1 || own.Capabilities.Drop[0] != "ALL" {
		t.Errorf("security context %+v", own)
	}
	if *spec.AutomountServiceAccountToken || spec.ServiceAccountName != "" || *spec.EnableServiceLinks || len(spec.Volumes) != 0 {
		t.Errorf("it has more than it needs: %+v", spec)
	}
	if c.Lifecycle.PreStop.Sleep.Seconds != leaveSeconds || *spec.TerminationGracePeriodSeconds != 35 {
		t.Errorf("it leaves within %d s", *spec.TerminationGracePeriodSeconds)
	}
	if own := ordinary(t, deployment(), Settings{}); own.SecurityContext.RunAsUser != nil || !*own.SecurityContext.RunAsNonRoot {
		t.Error("the image's own user may be root")
	}
	if root := ordinary(t, deployment(), Settings{AllowRoot: true}); root.SecurityContext.RunAsNonRoot != nil {
		t.Error("root was allowed and is refused")
	}
}

func TestReadOnlyRootHasTmp(t *testing.T) {
	spec := ordinary(t, deployment(func(d *types.FunctionDeployment) { d.ReadOnlyRootFilesystem = true }), Settings{})
	c := spec.Containers[0]
	if !*c.SecurityContext.ReadOnlyRootFilesystem || c.VolumeMounts[0].MountPath != "/tmp" || spec.Volumes[0].EmptyDir == nil {
		t.Errorf("mounts %+v of %+v", c.VolumeMounts, spec.Volumes)
	}
}

func TestEnvironment(t *testing.T) {
	d := deployment(func(d *types.FunctionDeployment) {
		d.EnvProcess, d.EnvVars = "cat", map[string]string{"b": "$(a) $$", "a": "1", "write_timeout": "90s"}
	})
	spec := ordinary(t, d, Settings{})
	var got []string
	for _, e := range spec.Containers[0].Env {
		got = append(got, e.Name+"="+e.Value)
	}
	if want := []string{"fprocess=cat", "a=1", "b=$$(a) $$", "write_timeout=90s", "OPENFAAS_NAME=figlet"}; !slices.Equal(got, want) {
		t.Errorf("environment %q, want %q", got, want)
	}
	if *spec.TerminationGracePeriodSeconds != 95 {
		t.Errorf("write_timeout is 90 s, and it may take %d s to leave", *spec.TerminationGracePeriodSeconds)
	}
	if g := Grace(map[string]string{"exec_timeout": "90"}); g != 95*time.Second {
		t.Errorf("the grace of a function that may take 90 s, in seconds, is %v", g)
	}
	if g := Grace(map[string]string{"exec_timeout": "100h", "write_timeout": "soon"}); g != time.Hour+5*time.Second {
		t.Errorf("grace %v", g)
	}
}

// A secret's keys are files, except for a registry's credentials.
func TestSecrets(t *testing.T) {
	d := deployment(func(d *types.FunctionDeployment) { d.Secrets = []string{"api-key", "hub", "other", "api-key"} })
	spec := ordinary(t, d, Settings{Secrets: map[string]corev1.SecretType{"hub": corev1.SecretTypeDockerConfigJson, "other": corev1.SecretTypeOpaque}})
	if len(spec.ImagePullSecrets) != 1 || spec.ImagePullSecrets[0].Name != "hub" {
		t.Errorf("pull secrets %+v", spec.ImagePullSecrets)
	}
	sources := spec.Volumes[0].Projected.Sources
	if len(sources) != 2 || sources[0].Secret.Name != "api-key" || sources[1].Secret.Name != "other" {
		t.Errorf("sources %+v", sources)
	}
	if m := spec.Containers[0].VolumeMounts[0]; m.MountPath != "/var/openfaas/secrets" || !m.ReadOnly {
		t.Errorf("mount %+v", m)
	}
}

func TestConstraints(t *testing.T) {
	got, err := NodeSelector([]string{"disktype=ssd", "example.com/fips = true", "a == b", "empty=", "a=b"})
	if err != nil || len(got) != 4 || got["disktype"] != "ssd" || got["example.com/fips"] != "true" || got["a"] != "b" || got["empty"] != "" {
		t.Errorf("%v, %v", got, err)
	}
	for _, c := range []string{"ssd", "=x", "disktype!=ssd", "a=b c", "disk type=ssd", "a=" + strings.Repeat("x", 64)} {
		var wrong *Error
		if _, err := NodeSelector([]string{c}); !errors.As(err, &wrong) || wrong.HTTPStatus() != 400 || !strings.HasPrefix(err.Error(), "constraints is ") {
			t.Errorf("%q: %v", c, err)
		}
	}
	if _, err := NodeSelector([]string{"a=b", "a=c"}); err == nil || !strings.Contains(err.Error(), "a=b") {
		t.Errorf("contradiction: %v", err)
	}
}

// Pinning a pod to a node keeps its profile's demands on nodes.
func TestPin(t *testing.T) {
	var spec corev1.PodSpec
	Pin(&spec, "n1")
	terms := spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	if len(terms) != 1 || terms[0].MatchFields[0].Key != "metadata.name" || terms[0].MatchFields[0].Values[0] != "n1" {
		t.Errorf("%+v", terms)
	}
	p, err := ParseProfile("nvme", []byte(`
affinity:
  nodeAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
      nodeSelectorTerms:
      - matchExpressions: [{key: nvme, operator: In, values: [installed]}]
      - matchExpressions: [{key: fast, operator: Exists}]
tolerations: [{key: nvme, operator: Exists, effect: NoSchedule}]
`))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // The profile itself must not change.
		spec = corev1.PodSpec{}
		if err := Apply(&spec, deployment(), Settings{Profiles: []Profile{p}}); err != nil {
			t.Fatal(err)
		}
		Pin(&spec, "n1")
		for _, term := range spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
			if len(term.MatchExpressions) != 1 || len(term.MatchFields) != 1 {
				t.Errorf("term %+v", term)
			}
		}
	}
}

func TestResources(t *testing.T) {
	profile, err := ParseProfile("default", []byte(`{"resources":{"requests":{"memory":"64Mi","cpu":"250m"},"limits":{"memory":"128Mi","cpu":"500m","nvidia.com/gpu":1}}}`))
	if err != nil {
		t.Fatal(err)
	}
	d := deployment(func(d *types.FunctionDeployment) { d.Limits = &types.FunctionResources{Memory: "32Mi"} })
	got, err := Resources(d, []Profile{profile})
	if err != nil {
		t.Fatal(err)
	}
	text, _ := json.Marshal(got)
	if want := `{"limits":{"cpu":"500m","memory":"32Mi","nvidia.com/gpu":"1"},"requests":{"cpu":"250m","memory":"32Mi","nvidia.com/gpu":"1"}}`; string(text) != want {
		t.Errorf("%s, want %s", text, want)
	}
	for _, c := range []struct {
		name string
		edit func(*types.FunctionDeployment)
		want string
	}{
		{"a field", func(d *types.FunctionDeployment) { d.Limits = &types.FunctionResources{NvidiaGPU: "2"} }, "2"},
		{"a request", func(d *types.FunctionDeployment) { d.Requests = &types.FunctionResources{NvidiaGPU: "3"} }, "3"},
		{"an annotation", annotated(GPUKey, "4"), "4"},
		{"a label", func(d *types.FunctionDeployment) { (*d.Labels)[GPUKey] = "5" }, "5"},
		{"none", func(d *types.FunctionDeployment) { d.Limits = &types.FunctionResources{NvidiaGPU: "0"} }, ""},
	} {
		got, err := Resources(deployment(c.edit), nil)
		limit, request := got.Limits[NvidiaGPU], got.Requests[NvidiaGPU]
		if c.want == "" && len(got.Limits) == 0 && err == nil {
			continue
		}
		if err != nil || limit.String() != c.want || request.String() != c.want {
			t.Errorf("%s: %v of %v, %v", c.name, request.String(), limit.String(), err)
		}
	}
}

func TestBadResources(t *testing.T) {
	for _, c := range []struct {
		limits, requests types.FunctionResources
		want             string
	}{
		{types.FunctionResources{CPU: "fast"}, types.FunctionResources{}, "limits.cpu"},
		{types.FunctionResources{}, types.FunctionResources{Memory: "-1"}, "requests.memory"},
		{types.FunctionResources{NvidiaGPU: "0.5"}, types.FunctionResources{}, "limits.nvidia.com/gpu"},
		{types.FunctionResources{CPU: "1"}, types.FunctionResources{CPU: "2"}, "requests.cpu"},
		{types.FunctionResources{AmdGPU: "1"}, types.FunctionResources{AmdGPU: "2"}, "requests.amd.com/gpu"},
	} {
		d := deployment(func(d *types.FunctionDeployment) { d.Limits, d.Requests = &c.limits, &c.requests })
		if _, err := Resources(d, nil); err == nil || !strings.HasPrefix(err.Error(), c.want+" is ") {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

func TestProbes(t *testing.T) {
	live, ready, err := Probes(deployment())
	if err != nil || live.HTTPGet.Path != "/_/health" || ready.HTTPGet.Path != "/_/health" || ready.PeriodSeconds != 2 || live.PeriodSeconds*live.FailureThreshold < 30 || ready.SuccessThreshold != 1 || live.HTTPGet.Port.IntValue() != 8080 {
		t.Errorf("%+v, %+v, %v", live, ready, err)
	}
	live, ready, err = Probes(deployment(annotated(
		HealthPrefix+"path", "/healthz", HealthPrefix+"initialDelay", "30s", HealthPrefix+"periodSeconds", "5s", HealthPrefix+"failureThreshold", "7")))
	if err != nil || live.HTTPGet.Path != "/healthz" || ready.HTTPGet.Path != "/healthz" || live.InitialDelaySeconds != 30 || live.PeriodSeconds != 5 || live.FailureThreshold != 7 || ready.PeriodSeconds != 2 {
		t.Errorf("%+v, %+v, %v", live, ready, err)
	}
	_, ready, err = Probes(deployment(annotated(
		ReadyPrefix+"path", "/_/ready", ReadyPrefix+"initialDelaySeconds", "3", ReadyPrefix+"timeoutSeconds", "1.5s", ReadyPrefix+"successThreshold", "2")))
	if err != nil || ready.HTTPGet.Path != "/_/ready" || ready.InitialDelaySeconds != 3 || ready.TimeoutSeconds != 2 || ready.SuccessThreshold != 2 {
		t.Errorf("%+v, %v", ready, err)
	}
	for _, c := range [][2]string{{HealthPrefix + "path", "healthz"}, {ReadyPrefix + "path", "/a b"}, {ReadyPrefix + "periodSeconds", "0"}, {ReadyPrefix + "initialDelay", "-1s"},
		{HealthPrefix + "timeoutSeconds", "2h"}, {HealthPrefix + "failureThreshold", "often"}, {HealthPrefix + "successThreshold", "2"}} {
		if _, _, err := Probes(deployment(annotated(c[0], c[1]))); err == nil || !strings.HasPrefix(err.Error(), c[0]) {
			t.Errorf("%s %q: %v", c[0], c[1], err)
		}
	}
}

func FuzzProbes(f *testing.F) {
	f.Add("/x", "3", "5s")
	f.Fuzz(func(t *testing.T, path, period, count string) {
		d := deployment(annotated(HealthPrefix+"path", path, ReadyPrefix+"periodSeconds", period, ReadyPrefix+"successThreshold", count))
		live, ready, err := Probes(d)
		if err == nil && (live.HTTPGet.Path[0] != '/' || ready.PeriodSeconds < 1 || ready.SuccessThreshold < 1) {
			t.Errorf("%+v, %+v", live, ready)
		}
	})
}

func FuzzNodeSelector(f *testing.F) {
	f.Add("a=b", "c==d")
	f.Fuzz(func(t *testing.T, one, two string) {
		if got, err := NodeSelector([]string{one, two}); err == nil && len(got) == 0 {
			t.Error("constraints were dropped")
		}
	})
}

// known are profiles in memory.
type known map[string]Profile

func (k known) Profile(name string) (Profile, error) {
	if p, ok := k[name]; ok {
		return p, nil
	}
	return Profile{}, ErrNoProfile
}

func TestProfiles(t *testing.T) {
	parse := func(text string) Profile {
		p, err := ParseProfile("p", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	all := known{
		"gvisor": parse("runtimeClassName: gvisor\npodSecurityContext: {runAsUser: 7}\ntolerations: [{key: a}]"),
		"gpu":    parse("runtimeClass: nvidia\nstrategy: {type: Recreate}\ndnsPolicy: None\ndnsConfig: {nameservers: [8.8.8.8]}\npriorityClassName: high\ntolerations: [{key: b}]"),
		"spread": parse("topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule}]"),
	}
	d := deployment(annotated(ProfileAnnotation, " gvisor, gpu,spread,,gpu"))
	found, err := Named(all, d)
	if err != nil || len(found) != 3 {
		t.Fatal(found, err)
	}
	spec := ordinary(t, d, Settings{Profiles: found, User: DefaultUser})
	pod := spec.SecurityContext
	if *spec.RuntimeClassName != "nvidia" || *pod.RunAsUser != 7 || !*pod.RunAsNonRoot || pod.SeccompProfile == nil || spec.PriorityClassName != "high" ||
		spec.DNSPolicy != corev1.DNSNone || spec.DNSConfig.Nameservers[0] != "8.8.8.8" || len(spec.Tolerations) != 4 || len(spec.TopologySpreadConstraints) != 1 {
		t.Errorf("%+v", spec)
	}
	if s := Strategy(found); s.Type != appsv1.RecreateDeploymentStrategyType {
		t.Errorf("strategy %+v", s)
	}
	if s := Strategy(nil); s.Type != appsv1.RollingUpdateDeploymentStrategyType || s.RollingUpdate.MaxUnavailable.IntValue() != 0 {
		t.Errorf("strategy %+v", s)
	}
	if _, err := Named(all, deployment(annotated(ProfileAnnotation, "gvisor,none"))); err == nil || !strings.Contains(err.Error(), `"none"`) {
		t.Errorf("missing: %v", err)
	}
	if _, err := Named(nil, deployment(annotated(ProfileAnnotation, "x"))); err == nil {
		t.Error("a profile was found where there are none")
	}
	if _, err := Named(nil, deployment()); err != nil {
		t.Error(err)
	}
	for _, text := range []string{"nodeSelector: {a: b}", "tolerations: 3", "strategy: {type: Sometimes}", "{"} {
		if _, err := ParseProfile("p", []byte(text)); err == nil || !strings.HasPrefix(err.Error(), `profile is "p"`) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestIdentityAndLabels(t *testing.T) {
	spec := ordinary(t, deployment(annotated(ServiceAccountAnnotation, "reader")), Settings{})
	if spec.ServiceAccountName != "reader" || spec.AutomountServiceAccountToken != nil {
		t.Errorf("%+v", spec)
	}
	if _, err := Ordinary(deployment(annotated(ServiceAccountAnnotation, "Not A Name")), Settings{}, ""); err == nil {
		t.Error("it was taken")
	}
	d := deployment(func(d *types.FunctionDeployment) {
		(*d.Labels)["com.openfaas.scale.max"], (*d.Labels)["canary"] = "3", "true"
		(*d.Annotations)["topic"], (*d.Annotations)["com.openfaas.scale.zero"] = "any text: at all", "true"
	})
	labels, err := Labels(d)
	annotations, other := Annotations(d)
	if err != nil || other != nil || len(labels) != 1 || labels["canary"] != "true" || len(annotations) != 1 {
		t.Errorf("%v, %v, %v, %v", labels, err, annotations, other)
	}
	(*d.Labels)["owner"] = "two words"
	if _, err := Labels(d); err == nil || !strings.HasPrefix(err.Error(), "labels.owner") {
		t.Error(err)
	}
	(*d.Annotations)["a b"] = ""
	if _, err := Annotations(d); err == nil || !strings.Contains(err.Error(), `"a b"`) {
		t.Error(err)
	}
}
