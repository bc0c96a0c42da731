package objects

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/faas-infer/faas-infer/cluster/kubernetes/v1alpha1"
)

// Profiles of models that no function has had for 30 days are collected, and nothing else is.
func TestFateOfProfiles(t *testing.T) {
	now := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	day := 24 * time.Hour
	for name, c := range map[string]struct {
		made, last time.Duration // ago; 0 for never
		hash       string
		edit       func(*corev1.ConfigMap)
		want       fate
	}{
		"used, first look":       {made: time.Hour, hash: "used", want: marked},
		"used, marked today":     {made: 90 * day, last: time.Hour, hash: "used", want: stays},
		"used, marked long ago":  {made: 90 * day, last: 40 * day, hash: "used", want: marked},
		"unused since a week":    {made: 90 * day, last: 7 * day, hash: "old", want: stays},
		"unused for long":        {made: 90 * day, last: 31 * day, hash: "old", want: collected},
		"never marked, new":      {made: day, hash: "old", want: stays},
		"never marked, long ago": {made: 31 * day, hash: "old", want: collected},
		"operators": {made: 90 * day, hash: "old", want: stays,
			edit: func(c *corev1.ConfigMap) { c.Labels[OperatorsLabel] = "true" }},
		"a correction": {made: 90 * day, hash: "old", want: stays,
			edit: func(c *corev1.ConfigMap) { c.Labels[KindLabel] = kindCorrection }},
		"somebody else's": {made: 90 * day, hash: "old", want: stays,
			edit: func(c *corev1.ConfigMap) { delete(c.Labels, v1alpha1.ManagedByLabel) }},
		"without a key": {made: 90 * day, hash: "old", want: stays,
			edit: func(c *corev1.ConfigMap) { delete(c.Data, keyOf) }},
	} {
		m := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(now.Add(-c.made)), Annotations: map[string]string{},
				Labels: map[string]string{KindLabel: kindProfile, v1alpha1.ManagedByLabel: v1alpha1.ManagedBy}},
			Data: map[string]string{keyOf: c.hash + " onnxruntime 1.32.0 AMD EPYC × 2 b≤32"},
		}
		if c.last > 0 {
			m.Annotations[usedAnnotation] = now.Add(-c.last).Format(time.RFC3339)
		}
		if c.edit != nil {
			c.edit(m)
		}
		if got := fateOf(m, func(hash string) bool { return hash == "used" }, now); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}
