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
	pod, err = Model(plan())
	if err != nil || slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == contentVolume }) {
		t.Errorf("a pod whose image has the model: %v, %v", pod.Spec.Volumes, err)
	}
}
