package podspec

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// An instance whose image does not have its model has a directory for it, and is told what it gets. The deployment
// cannot change that.
func TestContent(t *testing.T) {
	p := plan()
	p.Content, p.Spec.Env[contentVariable] = "the-content", "another"
	pod, err := Model(p)
	if err != nil {
		t.Fatal(err)
	}
	c := pod.Spec.Containers[0]
	var got []string
	for _, e := range c.Env {
		if e.Name == contentVariable || e.Name == contentDirVariable {
			got = append(got, e.Value)
		}
	}
	if !slices.Equal(got, []string{"the-content", ContentPath}) {
		t.Errorf("the variables are %v", got)
	}
	if !slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool {
		return m.MountPath == ContentPath && !m.ReadOnly
	}) {
		t.Errorf("mounted are %v", c.VolumeMounts)
	}
	// A provider gives up what loads for two minutes.
	if p := c.LivenessProbe; p.PeriodSeconds*p.FailureThreshold <= 120 {
		t.Errorf("it is killed while it loads: %+v", p)
	}
	// A node's pods share the content, and none of them can change it.
	mounts := func(p ModelPlan) (all []corev1.VolumeMount) {
		pod, err := Model(p)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range pod.Spec.Containers[0].VolumeMounts {
			if m.MountPath == nodeModelPath {
				all = append(all, m)
			}
		}
		return all
	}
	if got := mounts(p); len(got) != 0 {
		t.Errorf("without copies: %v", got)
	}
	p.Copies = "claim"
	if got := mounts(p); len(got) != 1 || !got[0].ReadOnly || got[0].SubPath != "model.the-content" {
		t.Errorf("with copies: %v", got)
	}
	pod, err = Model(plan())
	if err != nil || slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == contentVolume }) {
		t.Errorf("a pod whose image has the model: %v, %v", pod.Spec.Volumes, err)
	}
}
