package podspec

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/v1alpha1"
	"github.com/faas-infer/faas-infer/gpu"
)

func plan() ModelPlan {
	return ModelPlan{
		Spec: cluster.InstanceSpec{
			ID: "mnist-0011223344ff", Function: "mnist.openfaas-fn", Revision: 7, Node: "n1",
			Config:   cluster.Config{Batch: 8, Resources: cluster.Resources{CPU: 2000, Memory: 256 << 20}},
			Artefact: cluster.Artefact{Bundle: "registry:5000/mnist@sha256:" + strings.Repeat("0", 64), Model: "/bundle/model.onnx"},
			Env:      map[string]string{"b": "2", "a": "$(X)"}, Secrets: map[string]string{"key": "", "registry": ""},
		},
		Owner: &v1alpha1.Function{
			ObjectMeta: metav1.ObjectMeta{Name: "mnist", Namespace: "openfaas-fn", UID: "u1"},
			Spec: v1alpha1.FunctionSpec{Constraints: []string{"disk=ssd"}, ReadOnlyRootFilesystem: true,
				Labels: map[string]string{"team": "a", "bad label": "x", v1alpha1.ManagedByLabel: "me"}},
		},
		Secrets: map[string]corev1.SecretType{"registry": corev1.SecretTypeDockerConfigJson},
		Args:    []string{"instance"}, Grace: 1500 * time.Millisecond, StartedAt: time.Unix(1000, 5e6),
	}
}

func TestBuildAndRead(t *testing.T) {
	p := plan()
	pod, err := Model(p)
	if err != nil {
		t.Fatal(err)
	}
	if pod.Name != "mnist-0011223344ff" || pod.Namespace != "openfaas-fn" || !IsModel(pod) {
		t.Errorf("metadata %+v", pod.ObjectMeta)
	}
	want := map[string]string{"team": "a", v1alpha1.ManagedByLabel: "faas-infer", v1alpha1.FunctionLabel: "mnist", v1alpha1.InstanceLabel: pod.Name}
	if !reflect.DeepEqual(pod.Labels, want) {
		t.Errorf("labels %v, want %v", pod.Labels, want)
	}
	if o := pod.OwnerReferences; len(o) != 1 || o[0].UID != "u1" || o[0].Kind != "Function" || !*o[0].Controller {
		t.Errorf("owner %+v", o)
	}
	c := pod.Spec.Containers[0]
	if got := c.Resources; got.Requests.Cpu().MilliValue() != 2000 || !reflect.DeepEqual(got.Requests, got.Limits) {
		t.Errorf("resources %+v", got)
	}
	if *pod.Spec.TerminationGracePeriodSeconds != 2 || *pod.Spec.AutomountServiceAccountToken || pod.Spec.NodeName != "" {
		t.Errorf("spec %+v", pod.Spec)
	}
	if !*pod.Spec.SecurityContext.RunAsNonRoot || *c.SecurityContext.AllowPrivilegeEscalation || !*c.SecurityContext.ReadOnlyRootFilesystem {
		t.Error("it is not restricted")
	}
	if len(pod.Spec.ImagePullSecrets) != 1 || len(pod.Spec.Volumes) != 2 {
		t.Errorf("pull secrets %v, volumes %v", pod.Spec.ImagePullSecrets, pod.Spec.Volumes)
	}
	term := pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0]
	if term.MatchFields[0].Values[0] != "n1" || pod.Spec.NodeSelector["disk"] != "ssd" {
		t.Errorf("placing %+v %v", term, pod.Spec.NodeSelector)
	}
	in, err := ReadModel(pod)
	if err != nil || !reflect.DeepEqual(in.InstanceSpec, p.Spec) || !in.StartedAt.Equal(p.StartedAt) || in.State != cluster.Starting {
		t.Errorf("read %+v, %v", in, err)
	}
}

// A member's pod says its place in the set, by which another provider finds the set again, and has
// a label that no other pod can have.
func TestMembers(t *testing.T) {
	for number, role := range []string{v1alpha1.MemberMaster, v1alpha1.MemberWorker, ""} {
		p := plan()
		p.Owner.Spec.Labels = map[string]string{v1alpha1.MemberLabel: "master"}
		if role != "" {
			p.Spec.Set, p.Spec.Member, p.Spec.Plan, p.Spec.Config.Parts, p.Spec.Config.Concurrency = p.Spec.ID, number, `{"model":"m"}`, 2, 3
		}
		if number == 1 {
			p.Spec.ID += "-1-abcdef"
		}
		pod, err := Model(p)
		if err != nil {
			t.Fatal(err)
		}
		if got, has := pod.Labels[v1alpha1.MemberLabel]; got != role || has != (role != "") {
			t.Errorf("member %d has the label %q", number, got)
		}
		if in, err := ReadModel(Trim(pod)); err != nil || !reflect.DeepEqual(in.InstanceSpec, p.Spec) {
			t.Errorf("read %+v, %v", in, err)
		}
	}
	for want, change := range map[string]func(*cluster.InstanceSpec){
		"config.parts is 257":      func(s *cluster.InstanceSpec) { s.Config.Parts = 257 },
		"config.active is -1":      func(s *cluster.InstanceSpec) { s.Config.Active = -1 },
		"config.concurrency is -1": func(s *cluster.InstanceSpec) { s.Config.Concurrency = -1 },
		"member is 2: it must":     func(s *cluster.InstanceSpec) { s.Set, s.Config.Parts, s.Member = "s", 2, 2 },
		"member is 0 of set \"s\"": func(s *cluster.InstanceSpec) { s.Set, s.Config.Parts = "s", 2 },
		"member is 1: it must be":  func(s *cluster.InstanceSpec) { s.Member = 1 },
	} {
		p := plan()
		change(&p.Spec)
		pod, err := Model(p)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ReadModel(pod); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestBuildRefuses(t *testing.T) {
	for name, change := range map[string]func(*ModelPlan){
		"exist any more": func(p *ModelPlan) { p.Owner = nil },
		"a namespace":    func(p *ModelPlan) { p.Spec.Function = "mnist" },
		"Deployment":     func(p *ModelPlan) { p.Spec.Kind = cluster.Process },
		"constraints":    func(p *ModelPlan) { p.Owner.Spec.Constraints = []string{"ssd"} },
	} {
		p := plan()
		change(&p)
		if _, err := Model(p); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%v, want a word of %q", err, name)
		}
	}
}

// Pin keeps the affinity of a profile.
func TestPinAddsToAProfile(t *testing.T) {
	p := plan()
	p.Profiles = []Profile{{
		Tolerations: []corev1.Toleration{{Key: "gpu", Operator: corev1.TolerationOpExists}},
		Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "a", Operator: corev1.NodeSelectorOpExists}}}, {}}}}},
	}}
	pod, err := Model(p)
	if err != nil {
		t.Fatal(err)
	}
	for _, term := range pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		if len(term.MatchFields) != 1 {
			t.Errorf("term %+v would let it run elsewhere", term)
		}
	}
	if len(pod.Spec.Tolerations) != 1 {
		t.Errorf("tolerations %v", pod.Spec.Tolerations)
	}
}

func TestGPUShare(t *testing.T) {
	p := plan()
	p.Spec.Env["CUDA_VISIBLE_DEVICES"] = "all"
	p.Share = &gpu.Share{Device: "GPU-1", Percent: 30, Memory: 1 << 30, PipeDirectory: "/run/mps"}
	pod, err := Model(p)
	if err != nil {
		t.Fatal(err)
	}
	env := pod.Spec.Containers[0].Env
	of := func(name string) (values []string) {
		for _, e := range env {
			if e.Name == name {
				values = append(values, e.Value)
			}
		}
		return values
	}
	if got := of("CUDA_VISIBLE_DEVICES"); !slices.Equal(got, []string{"GPU-1"}) || pod.Annotations[gpu.DeviceAnnotation] != "GPU-1" {
		t.Errorf("devices %v, %v", got, pod.Annotations)
	}
	if got := of("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"); !slices.Equal(got, []string{"30"}) {
		t.Errorf("share %v", got)
	}
	if len(pod.Spec.Containers[0].VolumeMounts) != 4 {
		t.Errorf("mounts %v", pod.Spec.Containers[0].VolumeMounts)
	}
}

// An instance that has a MIG instance, or a GPU without MPS, mounts nothing of the node. Its share is read
// back as it was planned.
func TestWholeDevice(t *testing.T) {
	p := plan()
	p.Spec.Config.GPU, p.Spec.Config.GPUMemory, p.Spec.Devices = 40, 1<<30, []string{"MIG-1"}
	p.Share = &gpu.Share{Device: "MIG-1", Percent: 40, Memory: 1 << 30, RuntimeClass: "nvidia"}
	pod, err := Model(p)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range pod.Spec.Volumes {
		if v.HostPath != nil {
			t.Errorf("it mounts %+v", v.HostPath)
		}
	}
	for _, e := range pod.Spec.Containers[0].Env {
		if e.Name == "CUDA_MPS_PIPE_DIRECTORY" {
			t.Errorf("%+v", e)
		}
	}
	if in, err := ReadModel(Trim(pod)); err != nil || in.Config != p.Spec.Config || in.Device() != "MIG-1" || *pod.Spec.RuntimeClassName != "nvidia" {
		t.Errorf("%+v, %v", in, err)
	}
}

// An instance with a GPU of NVIDIA's device plugin asks for it as other pods do, and mounts nothing. Its function
// cannot ask the container runtime for more. It is read back with the name that it was planned with.
func TestGrantedGPU(t *testing.T) {
	p := plan()
	p.Spec.Env["NVIDIA_VISIBLE_DEVICES"] = "all"
	p.Spec.Config.GPU, p.Spec.Config.GPUMemory, p.Spec.Devices = 100, 15<<30, []string{gpu.Granted(2)}
	p.Share = &gpu.Share{Device: gpu.Granted(2), Percent: 100, Memory: 15 << 30, Grant: gpu.WholeResource}
	pod, err := Model(p)
	if err != nil {
		t.Fatal(err)
	}
	c := pod.Spec.Containers[0]
	for what, list := range map[string]corev1.ResourceList{"requests": c.Resources.Requests, "limits": c.Resources.Limits} {
		if n := list[gpu.WholeResource]; n.Value() != 1 || list.Cpu().IsZero() {
			t.Errorf("%s are %v", what, list)
		}
	}
	for _, e := range c.Env {
		if e.Name == gpu.VisibleEnv || e.Name == "CUDA_MPS_PIPE_DIRECTORY" || e.Name == "CUDA_VISIBLE_DEVICES" && e.Value != "0" {
			t.Errorf("%+v", e)
		}
	}
	for _, v := range pod.Spec.Volumes {
		if v.HostPath != nil {
			t.Errorf("it mounts %+v", v.HostPath)
		}
	}
	if in, err := ReadModel(Trim(pod)); err != nil || in.Config != p.Spec.Config || in.Device() != gpu.Granted(2) {
		t.Errorf("%+v, %v", in, err)
	}
	p.Spec.Devices = []string{"GPU-1"} // As if somebody had edited the annotation.
	if pod, err = Model(p); err != nil {
		t.Fatal(err)
	}
	if in, err := ReadModel(pod); err != nil || in.Device() != "" || in.Config.GPU != 100 {
		t.Errorf("%+v, %v", in, err)
	}
}

// A claim replaces the container runtime's way to a GPU, and a RuntimeClass is set only for that.
func TestGPUClaim(t *testing.T) {
	visible := func(pod *corev1.Pod) bool {
		return slices.ContainsFunc(pod.Spec.Containers[0].Env, func(e corev1.EnvVar) bool { return e.Name == gpu.VisibleEnv })
	}
	for _, claim := range []string{"", "faas-infer-gpu-1"} {
		p := plan()
		p.Share, p.Claim = &gpu.Share{Device: "GPU-1", Percent: 30, PipeDirectory: "/run/mps", RuntimeClass: "nvidia"}, claim
		pod, err := Model(p)
		if err != nil {
			t.Fatal(err)
		}
		spec, c := pod.Spec, pod.Spec.Containers[0]
		switch {
		case claim == "":
			if len(spec.ResourceClaims)+len(c.Resources.Claims) > 0 || spec.RuntimeClassName == nil || *spec.RuntimeClassName != "nvidia" || !visible(pod) {
				t.Errorf("without a claim: %+v", spec)
			}
		case len(spec.ResourceClaims) != 1 || *spec.ResourceClaims[0].ResourceClaimName != claim || len(c.Resources.Claims) != 1 ||
			c.Resources.Claims[0].Name != spec.ResourceClaims[0].Name || spec.RuntimeClassName != nil || visible(pod):
			t.Errorf("with a claim: %+v", spec)
		}
	}
	p, class := plan(), "other"
	p.Share, p.Profiles = &gpu.Share{Device: "GPU-1", Percent: 30, PipeDirectory: "/run/mps", RuntimeClass: "nvidia"}, []Profile{{RuntimeClassName: &class}}
	if pod, err := Model(p); err != nil || *pod.Spec.RuntimeClassName != "other" {
		t.Errorf("a profile's RuntimeClass is replaced: %v", err)
	}
}

// An instance has the share of a GPU that its environment limits it to, whatever somebody has
// written into its pod's annotations or its function's.
func TestGPUShareCannotBeEdited(t *testing.T) {
	p := plan()
	p.Spec.Config.GPU, p.Spec.Config.GPUMemory, p.Spec.Devices = 30, 1<<30, []string{"GPU-1"}
	p.Share = &gpu.Share{Device: "GPU-1", Percent: 30, Memory: 1 << 30, PipeDirectory: "/run/mps"}
	pod, err := Model(p)
	if err != nil {
		t.Fatal(err)
	}
	pod.Annotations[gpu.DeviceAnnotation] = "GPU-2"
	pod.Annotations[v1alpha1.SpecAnnotation] = strings.NewReplacer(`"gpu":30`, `"gpu":90`, "GPU-1", "GPU-2").Replace(pod.Annotations[v1alpha1.SpecAnnotation])
	in, err := ReadModel(Trim(pod))
	if err != nil || in.Config != p.Spec.Config || in.Device() != "GPU-1" {
		t.Errorf("edited: %+v, %v", in, err)
	}
	p = plan()
	p.Owner.Spec.Annotations = map[string]string{gpu.DeviceAnnotation: "GPU-1"}
	if pod, err = Model(p); err != nil || pod.Annotations[gpu.DeviceAnnotation] != "" {
		t.Errorf("a function claims to have a share: %v, %v", pod.Annotations, err)
	}
	pod.Annotations[v1alpha1.SpecAnnotation] = strings.Replace(pod.Annotations[v1alpha1.SpecAnnotation], `"gpu":0`, `"gpu":90`, 1)
	if in, err := ReadModel(Trim(pod)); err != nil || in.Config.GPU != 0 {
		t.Errorf("a share that nobody gave: %+v, %v", in, err)
	}
}

// ReadModel takes the share from the pod's resources, not from the annotation.
func TestReadFollowsResources(t *testing.T) {
	for _, c := range []struct {
		cpu, want int
		parked    bool
	}{{2000, 2000, false}, {1500, 1500, false}, {ParkedCPU, 2000, true}} {
		pod, err := Model(plan())
		if err != nil {
			t.Fatal(err)
		}
		pod.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = CPU(c.cpu)
		pod.Status.PodIP = "fd00::1"
		in, err := ReadModel(pod)
		if err != nil || in.Config.CPU != c.want || in.Parked != c.parked || in.Address != "[fd00::1]:8080" {
			t.Errorf("%d: %+v, %v", c.cpu, in, err)
		}
	}
}

// A pod that has more CPU until its instance is ready counts as what it will be, until its node has changed the quota.
// From then on its resources count. A function cannot say that its pods have more.
func TestStartingCPU(t *testing.T) {
	p := plan()
	p.Spec.Config.CPU, p.StartingCPU = 250, 900
	p.Owner.Spec.Annotations = map[string]string{StartingCPUAnnotation: "800"}
	made, err := Model(p)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		mark              string
		request, reported int
		starting, cpu     int
	}{
		"starts":                         {"900", 900, 0, 900, 250},
		"runs":                           {"900", 900, 900, 900, 250},
		"is being resized":               {"900", 250, 900, 900, 250},
		"is resized":                     {"900", 250, 250, 900, 250},
		"was resized by a leader before": {"900", 500, 500, 900, 500},
		"keeps it":                       {"", 900, 900, 0, 900},
		"has another size since":         {"", 500, 500, 0, 500},
		"was edited":                     {"64000", 900, 900, 0, 900},
		"was edited to a word":           {"all", 250, 250, 0, 250},
	} {
		pod := made.DeepCopy()
		if pod.Annotations[StartingCPUAnnotation] != "900" {
			t.Fatalf("its mark is %q", pod.Annotations[StartingCPUAnnotation])
		}
		pod.Annotations[StartingCPUAnnotation] = c.mark
		pod.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = CPU(c.request)
		if c.reported > 0 {
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
				Name:      pod.Spec.Containers[0].Name,
				Resources: &corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceCPU: CPU(c.reported)}},
			}}
		}
		pod = Trim(pod)
		in, err := ReadModel(pod)
		if err != nil || in.Config.CPU != c.cpu || in.Parked || StartingCPU(pod) != c.starting {
			t.Errorf("%s: it starts with %d of %+v, %v", name, StartingCPU(pod), in.Config, err)
		}
	}
	p.StartingCPU = 0
	if pod, err := Model(p); err != nil || StartingCPU(pod) != 0 {
		t.Errorf("a function says that its pods have %d, %v", StartingCPU(pod), err)
	}
}

// Members that share their CPU ask for less than they may use, also while they are parked: a resize
// must not change the class of a pod.
func TestMembersThatShare(t *testing.T) {
	set := cluster.Config{Batch: 1, Parts: 3, Active: 1, Resources: cluster.Resources{CPU: 1000, Memory: 3 << 30}}
	p := plan()
	p.Spec.Set, p.Spec.Config = p.Spec.ID, set.Share()
	pod, err := Model(p)
	if err != nil {
		t.Fatal(err)
	}
	of := &pod.Spec.Containers[0].Resources
	if r, l := of.Requests.Cpu().MilliValue(), of.Limits.Cpu().MilliValue(); r != 333 || l != 1000 {
		t.Errorf("it asks for %dm of at most %dm", r, l)
	}
	if in, err := ReadModel(pod); err != nil || in.Config != set.Share() || in.Config.Sum() != set {
		t.Errorf("read: %+v, %v", in.Config, err)
	}
	p.Spec.Parked = true
	parked := QuotaOf(p.Spec)
	of.Requests[corev1.ResourceCPU], of.Limits[corev1.ResourceCPU] = CPU(parked.Request), CPU(parked.Limit)
	if in, err := ReadModel(pod); err != nil || !in.Parked || in.Config.Sum() != set || parked.Request == parked.Limit {
		t.Errorf("parked: %+v, %v", in, err)
	}
	small := plan()
	small.Spec.Config.CPU = ParkedCPU
	if pod, err := Model(small); err != nil {
		t.Error(err)
	} else if in, err := ReadModel(pod); err != nil || in.Parked {
		t.Errorf("it holds no more than a parked one, and runs: %+v, %v", in, err)
	}
	set.CPU = 500
	next := QuotaOf(cluster.InstanceSpec{Config: set.Share()})
	of.Requests[corev1.ResourceCPU], of.Limits[corev1.ResourceCPU] = CPU(next.Request), CPU(next.Limit)
	if in, err := ReadModel(pod); err != nil || in.Parked || in.Config.Sum() != set {
		t.Errorf("resized: %+v, %v", in, err)
	}
}

func TestReadRefusesWhatIsNotOurs(t *testing.T) {
	for name, change := range map[string]func(*corev1.Pod){
		"unexpected end": func(p *corev1.Pod) { p.Annotations = nil },
		"namespace":      func(p *corev1.Pod) { p.Namespace = "other" },
		"pod's name":     func(p *corev1.Pod) { p.Name = "other" },
		"no container":   func(p *corev1.Pod) { p.Spec.Containers = nil },
		"batch":          func(p *corev1.Pod) { edit(p, `"batch":8`, `"batch":0`) },
		"below 0":        func(p *corev1.Pod) { edit(p, `"memory":268435456`, `"memory":-1`) },
		"of one GPU":     func(p *corev1.Pod) { edit(p, `"gpu":0`, `"gpu":101`) },
		"kind":           func(p *corev1.Pod) { edit(p, `{"id"`, `{"kind":"process","id"`) },
	} {
		pod, err := Model(plan())
		if err != nil {
			t.Fatal(err)
		}
		change(pod)
		if _, err := ReadModel(pod); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%v, want a word of %q", err, name)
		}
	}
}

func edit(pod *corev1.Pod, from, to string) {
	text := pod.Annotations[v1alpha1.SpecAnnotation]
	pod.Annotations[v1alpha1.SpecAnnotation] = strings.Replace(text, from, to, 1)
}

// No edit of the annotation makes an instance hold less than nothing.
func FuzzRead(f *testing.F) {
	pod, err := Model(plan())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(pod.Annotations[v1alpha1.SpecAnnotation], int64(2000), "10.0.0.1")
	f.Fuzz(func(t *testing.T, spec string, cpu int64, ip string) {
		pod := pod.DeepCopy()
		pod.Annotations[v1alpha1.SpecAnnotation] = spec
		pod.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = CPU(int(max(0, cpu)))
		pod.Status.PodIP = ip
		in, err := ReadModel(Trim(pod))
		if err != nil {
			return
		}
		if h := in.Holds(); h.CPU < 0 || h.Memory < 0 || h.GPU < 0 || h.GPUMemory < 0 || in.ID != "mnist-0011223344ff" {
			t.Errorf("%q holds %+v", spec, h)
		}
	})
}

// A pod with copies mounts the directory of its own function and model, in Pod Security's terms a claim.
func TestCopies(t *testing.T) {
	directory := func(change func(*ModelPlan)) string {
		t.Helper()
		p := plan()
		p.Copies, p.Spec.Env[CopiesVariable] = "faas-infer-copies", "/etc"
		change(&p)
		pod, err := Model(p)
		if err != nil {
			t.Fatal(err)
		}
		c := pod.Spec.Containers[0]
		var env []string
		for _, e := range c.Env {
			if e.Name == CopiesVariable {
				env = append(env, e.Value)
			}
		}
		at := slices.IndexFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == copiesVolume })
		if at < 0 || len(env) != 1 || env[0] != c.VolumeMounts[at].MountPath || c.VolumeMounts[at].ReadOnly {
			t.Fatalf("mounts %+v, variable %q", c.VolumeMounts, env)
		}
		for _, v := range pod.Spec.Volumes {
			if v.HostPath != nil || v.Name == copiesVolume && v.PersistentVolumeClaim.ClaimName != "faas-infer-copies" {
				t.Errorf("volume %+v", v)
			}
		}
		return c.VolumeMounts[at].SubPath
	}
	same := directory(func(*ModelPlan) {})
	if !strings.HasPrefix(same, "mnist-u1-") || strings.Contains(same, "/") {
		t.Errorf("the directory is %q", same)
	}
	if got := directory(func(p *ModelPlan) { p.Spec.ID, p.Spec.Revision, p.Spec.Config.Batch = "mnist-x", 8, 1 }); got != same {
		t.Errorf("another instance has %q, not %q", got, same)
	}
	seen := map[string]bool{same: true}
	for what, change := range map[string]func(*ModelPlan){
		"the function was made again": func(p *ModelPlan) { p.Owner.UID = "u2" },
		"another image":               func(p *ModelPlan) { p.Spec.Bundle += "1" },
		"another model of the image":  func(p *ModelPlan) { p.Spec.Model += "1" },
		"other sizes":                 func(p *ModelPlan) { p.Spec.Shapes = "x:1x7" },
	} {
		if got := directory(change); seen[got] {
			t.Errorf("%s: it has the same directory", what)
		} else {
			seen[got] = true
		}
	}
	if pod, err := Model(plan()); err != nil || slices.ContainsFunc(pod.Spec.Containers[0].Env, func(e corev1.EnvVar) bool { return e.Name == CopiesVariable }) {
		t.Errorf("without copies it has a directory: %v", err)
	}
}
